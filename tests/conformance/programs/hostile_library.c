/* A library for a program that opens it so that it sees the C library's functions first. */
#include <stdlib.h>
#include <string.h>

void *(*volatile its_malloc)(size_t) = malloc;

void *give(size_t size) {
    void *block = its_malloc(size);
    return block == NULL ? NULL : memset(block, 5, size);
}

/* Adds up and overwrites what it is lent. */
unsigned borrow(unsigned char *block, size_t size) {
    unsigned sum = 0;
    for (size_t i = 0; i < size; i++)
        sum += block[i];
    memset(block, 6, size);
    return sum;
}

/* Frees what the C library took from malloc. */
size_t copy_and_free(const char *text) {
    char *copy = strdup(text), *bounded = strndup(text, 3);
    size_t length = copy == NULL || bounded == NULL ? 0 : strlen(copy) + strlen(bounded);
    free(bounded);
    free(copy);
    return length;
}

void *malloc_it_sees(void) {
    return (void *)its_malloc;
}
