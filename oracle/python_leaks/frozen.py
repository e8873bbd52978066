# What gunicorn does before it forks: with this, the garbage collector leaves alone what is loaded.
import gc


def when_ready(server):
    gc.collect()
    gc.freeze()
