"""heapprof for Python programs: records a part of a program, and reads the profile of it.

The program must run with libheapprof.so preloaded:
LD_PRELOAD=$(heapprof setup preload-path) python3 app.py
"""

from .errors import AlreadyRecording, HeapprofError, NotPreloaded, NotRecording, ProfileError
from .profile import Frame, Profile, Stack
from .recording import Recording, dump, is_running, record

__all__ = [
    "AlreadyRecording",
    "Frame",
    "HeapprofError",
    "NotPreloaded",
    "NotRecording",
    "Profile",
    "ProfileError",
    "Recording",
    "Stack",
    "dump",
    "is_running",
    "record",
]
