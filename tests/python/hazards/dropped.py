# Makes functions, classes and modules at run time and drops them, because other code comes to the
# address of their code, and a name that was looked up late would be another one's.
import gc
import sys
import types

TEXT = """
def made_%d(n):
    block = [n] * %d
    return [bytes(n + i) for i in range(10)] + block[:1]
class C_%d:
    def method(self):
        return [bytearray(%d)]
"""
kept = []
total = 0
for i in range(1500):
    space = {}
    exec(compile(TEXT % (i, i % 90 + 1, i, i % 700 + 1), "<made %d>" % i, "exec"), space)
    total += len(space["made_%d" % i](i % 300))
    block = space["C_%d" % i]().method()
    if i % 50 == 0:
        kept.append(block)
    total += eval("sum(len(x) for x in [bytes(3)] * 5)")
    del space
    if i % 500 == 0:
        gc.collect()
print("exec", total, len(kept))
code = (lambda n: [n] * 100).__code__
for i in range(300):
    function = types.FunctionType(code.replace(co_name="replaced_%d" % i), {"bytes": bytes})
    if i % 100 == 0:
        kept.append(function(i))
    function.__code__ = (lambda n: [bytes(n)]).__code__
    function(i)
print("replaced", len(kept))
for i in range(200):
    module = types.ModuleType("module_%d" % i)
    exec("data = [bytes(600), bytes(60)]\ndef f(): return [data] * 50", module.__dict__)
    sys.modules[module.__name__] = module
    module.f()
    del sys.modules[module.__name__]
print("modules", sorted(n for n in sys.modules if n.startswith("module_")))
# A name that is no ASCII, a very long one, and files with strange names.
for name in ("f\u00fcnf", "\u4e94", "x" * 5000):
    space = {}
    exec(compile("def %s():\n return [bytes(50)] * 9" % name, "\udce9\u4e94" * 300, "exec"), space)
    print(len(name), len(space[name]()))
sys.exit(17)
