// Initializes and finalizes Python twice in one process, with threads that run code in between,
// because the second Python begins with what the first one has left.
#include <Python.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *CODE =
    "import sys, json, threading\n"
    "def f(n):\n"
    "    return [n] if n == 0 else [bytes(n * 10), f(n - 1)]\n"
    "class Late:\n"
    "    def __del__(self):\n"
    "        [bytes(i) for i in range(0, 900, 100)]\n"
    "kept = [f(50), json.dumps(list(range(1000))), Late()]\n"
    "kept.append(kept)\n"
    "t = threading.Thread(target=lambda: kept.append(f(20)))\n"
    "t.start(); t.join()\n"
    "print('code', len(kept), flush=True)\n";

static void *in_thread(void *number) {
    for (int i = 0; i < 20; i++) {
        PyGILState_STATE state = PyGILState_Ensure();
        PyRun_SimpleString("held = [bytes(n) for n in range(0, 800, 10)]; del held");
        PyGILState_Release(state);
    }
    return number;
}

static void run(int turn) {
    Py_Initialize();
    printf("turn %d %d\n", turn, PyRun_SimpleString(CODE));
    pthread_t threads[4];
    Py_BEGIN_ALLOW_THREADS
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, in_thread, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    Py_END_ALLOW_THREADS
    PyThreadState *main_state = PyThreadState_Get();
    PyThreadState *other = Py_NewInterpreter();
    PyRun_SimpleString("kept = [bytes(i) for i in range(700)]");
    Py_EndInterpreter(other);
    PyThreadState_Swap(main_state);
    printf("finalized %d\n", Py_FinalizeEx());
    fflush(stdout);
}

int main(void) {
    char *before = malloc(1000);
    for (int turn = 0; turn < 3; turn++) {
        run(turn);
        char *between = malloc(5000);
        memset(between, turn, 5000);
        free(between);
    }
    free(before);
    return 21;
}
