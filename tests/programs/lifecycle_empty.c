// scenario: lifecycle: a program that does nothing at all
// build: gcc -O2 -g
int main(void) { return 0; }
