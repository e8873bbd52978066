//! Simultaneous dumps: one waits for the other.

use heapprof_tests::built::{build, have};
use heapprof_tests::harness::run;

use super::read;

/// If the program requests a dump while another thread writes one, the second dump is made after
/// the first.
#[test]
fn dumps_that_meet_are_all_made() {
    if !have(&["gcc"]) {
        return;
    }
    let source = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
static int (*dump)(const char *);
static volatile int left = 2, number[2];
/* Waits until a thread is in a system call that ends when somebody else does something: in ppoll
   for room in the pipe, or in futex for the other dump. */
static void is_in(int thread, const char *call) {
    char name[100], text[100];
    for (;; usleep(1000)) {
        if (!number[thread]) continue;
        snprintf(name, sizeof name, "/proc/self/task/%d/syscall", number[thread]);
        int file = open(name, O_RDONLY);
        long length = read(file, text, sizeof text - 1);
        close(file);
        text[length > 0 ? length : 0] = 0;
        if (strncmp(text, call, strlen(call)) == 0) return;
    }
}
static void *ask(void *path) {
    number[strcmp(path, "pipe") != 0] = gettid();
    long failed = dump(path);
    __atomic_sub_fetch(&left, 1, __ATOMIC_SEQ_CST);
    return (void *)failed;
}
int main(void) {
    dump = (int (*)(const char *))dlsym(RTLD_DEFAULT, "heapprof_dump");
    static char junk[65536];
    mkfifo("pipe", 0600);
    int pipe = open("pipe", O_RDWR | O_NONBLOCK);
    while (write(pipe, junk, sizeof junk) > 0);
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, ask, "pipe");
    is_in(0, "271 ");
    kill(getpid(), SIGUSR2);
    pthread_create(&threads[1], NULL, ask, "second.pb.gz");
    is_in(1, "202 ");
    int before = left;
    while (left) if (read(pipe, junk, sizeof junk) < 0) usleep(1000);
    void *failed[2];
    for (int i = 0; i < 2; i++) pthread_join(threads[i], &failed[i]);
    for (int i = 0; i < 10; i++) free(malloc(100));
    printf("%d %ld %ld\n", before, (long)failed[0], (long)failed[1]);
    return 0;
}
"#;
    let built = build(source, "gcc -O1 -pthread");
    let folder = tempfile::tempdir().unwrap();
    let words = "record --exact --no-symbolize --on-signal USR2 -o out.pb.gz --";
    let mut words: Vec<&str> = words.split(' ').collect();
    words.push(built.program.to_str().unwrap());
    let found = run(folder.path(), &words);
    assert_eq!(found.out, "2 0 0\n", "{}", found.err);
    read(&folder.path().join("second.pb.gz"), "dump: request");
    // Dump numbers count in the whole process. The dump to the pipe and the second one have names
    // instead.
    read(&folder.path().join("out.0001.pb.gz"), "dump: signal");
    read(&folder.path().join("out.pb.gz"), "dump: exit");
}
