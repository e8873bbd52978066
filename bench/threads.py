#!/usr/bin/env python3
"""What threads cost: many that live at once, and many that come and go; bare, sampled and exact.

usage: threads.py --heapprof PATH [--runs 5] [--live 4000,8000] [--short 4000]
needs: gcc

Of live threads the time until all have started is shown, as the program takes it; of short ones the
CPU of everything. Medians.
"""

import argparse
import os
import resource
import statistics
import subprocess
import tempfile

SOURCE = r"""
# include <pthread.h>
# include <stdio.h>
# include <stdlib.h>
# include <string.h>
# include <time.h>
static pthread_barrier_t all;
static void *live(void *x) {
    for (int i = 0; i < 10; i++) { void *volatile p = malloc(i + 1); (void)p; }
    pthread_barrier_wait(&all);
    return x;
}
static void *brief(void *x) {
    for (int i = 0; i < 10; i++) { void *volatile p = malloc(i + 1); free(p); }
    return x;
}
int main(int argc, char **argv) {
    int n = atoi(argv[2]);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    if (strcmp(argv[1], "live")) {
        for (pthread_t t; n > 0; n--) if (pthread_create(&t, &small, brief, 0) || pthread_join(t, 0)) return 1;
        return 0;
    }
    struct timespec from, to;
    pthread_t *thread = malloc(n * sizeof *thread);
    pthread_barrier_init(&all, 0, n + 1);
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < n; i++) if (pthread_create(thread + i, &small, live, 0)) return 1;
    pthread_barrier_wait(&all);
    clock_gettime(CLOCK_MONOTONIC, &to);
    for (int i = 0; i < n; i++) pthread_join(thread[i], 0);
    printf("%f\n", to.tv_sec - from.tv_sec + (to.tv_nsec - from.tv_nsec) / 1e9);
}
"""


def used():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main():
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--heapprof", required=True)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--live", default="4000,8000")
    arguments.add_argument("--short", default="4000")
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="threads-") as folder:
        program = os.path.join(folder, "threads")
        subprocess.run(
            ["gcc", "-O1", "-pthread", "-x", "c", "-", "-o", program],
            input=SOURCE,
            text=True,
            check=True,
        )
        library = subprocess.run(
            [args.heapprof, "preload-path"], capture_output=True, text=True, check=True
        ).stdout.strip()
        modes = {"bare": {}}
        for mode in ("sampled", "exact"):
            modes[mode] = {
                "LD_PRELOAD": library,
                "HEAPPROF_MODE": mode,
                "HEAPPROF_OUTPUT": f"{folder}/out.pb.gz",
            }
        print(f"{'threads':>8} {'kind':6} " + " ".join(f"{mode:>20}" for mode in modes))
        for kind, counts in (("live", args.live), ("short", args.short)):
            for count in counts.split(","):
                took = {mode: [] for mode in modes}
                for _ in range(args.runs):
                    for mode, env in modes.items():
                        start = used()
                        ran = subprocess.run(
                            [program, kind, count],
                            env=dict(os.environ, **env),
                            capture_output=True,
                            text=True,
                            check=True,
                        )
                        took[mode].append(float(ran.stdout) if kind == "live" else used() - start)
                cells = []
                for mode in modes:
                    ratio = statistics.median(x / b for x, b in zip(took[mode], took["bare"]))
                    cells.append(f"{statistics.median(took[mode]):10.3f} s {ratio:6.2f}x")
                print(
                    f"{count:>8} {kind:6} " + " ".join(f"{cell:>20}" for cell in cells), flush=True
                )


if __name__ == "__main__":
    main()
