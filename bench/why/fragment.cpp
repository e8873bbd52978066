// Frees every second of many blocks: 160 MB of 256 bytes each, and half of them are holes.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <vector>

struct Session { char text[240]; };

static std::vector<Session *> serve(size_t count) {
    std::vector<Session *> sessions;
    for (size_t i = 0; i < count; i++) {
        sessions.push_back(new Session);
        memset(sessions.back(), 1, sizeof(Session));
    }
    for (size_t i = 0; i < count; i += 2) {
        delete sessions[i];
        sessions[i] = nullptr;
    }
    return sessions;
}

int main() {
    std::vector<Session *> sessions = serve(600000);
    printf("ready\n");
    fflush(stdout);
    if (getchar() == 'c') abort();
    return sessions.size() == 0;
}
