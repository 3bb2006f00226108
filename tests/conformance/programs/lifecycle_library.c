/* A library that allocates in its constructor and frees in its destructor. */
#include <stdlib.h>

unsigned char *constructed_block;

__attribute__((constructor)) static void construct(void) {
    constructed_block = malloc(1000);
    for (size_t i = 0; i < 1000; i++)
        constructed_block[i] = (unsigned char)(7 + i * 7 + (i >> 8));
}

__attribute__((destructor)) static void destruct(void) {
    free(constructed_block);
    free(malloc(50000));
}
