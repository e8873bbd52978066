// A library whose thread-local memory must lie beside that of the program.
__thread char room[100] __attribute__((tls_model("initial-exec"))) = "x";
char *where(void) { return room; }
