# Calculates with arrays of numpy, large and small ones.
import numpy

kept, total = [], 0.0
a = numpy.random.default_rng(1).normal(size=(120, 120))
for i in range(900):
    b = numpy.arange(14400.0).reshape(120, 120) % 7
    c = a @ b
    d = numpy.exp(-c * c) + numpy.sin(c)
    a = d / numpy.linalg.norm(d)
    total += float(numpy.median(a) + numpy.percentile(a, 90) + a.std())
    for j in range(60):
        total += float(numpy.add(numpy.ones(16), j).sum())
    if i % 20 == 0:
        kept.append(a.copy())
print(total)
