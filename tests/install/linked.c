/* Whether Ample serves a program that is linked with it: prints its version, and "served". */
#include <ample.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned long allocated(void) {
    char text[16384];
    if (ample_statistics_json(text, sizeof text) >= sizeof text)
        abort();
    return strtoul(strchr(text, ':') + 1, NULL, 10);
}

int main(void) {
    unsigned long before = allocated();
    char *block = malloc(5 << 20);
    unsigned long after = allocated();
    printf("%s %s\n", ample_version(), block != NULL && after - before >= 5 << 20 ? "served" : "alone");
    free(block);
}
