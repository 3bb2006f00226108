// A matrix product by columns: matrices of double whose rows are blocks, as `double **` and `vector<vector<double>>` have them. Going down a column, a program touches one cache line of each row.
//
// usage: columns ROWS TIMES
#include <stdio.h>
#include <stdlib.h>

static void *zeroed(size_t count, size_t size) {
    void *block = calloc(count, size);
    if (!block)
        abort();
    return block;
}

int main(int count, char **argument) {
    int rows = count > 1 ? atoi(argument[1]) : 0, times = count > 2 ? atoi(argument[2]) : 0;
    if (rows < 1 || times < 1) {
        fputs("usage: columns ROWS TIMES\n", stderr);
        return 2;
    }
    double **matrices[3], trace = 0;
    for (int m = 0; m < 3; m++)
        matrices[m] = zeroed(rows, sizeof *matrices[m]);
    double **left = matrices[0], **right = matrices[1], **product = matrices[2];
    for (int i = 0; i < rows; i++) {
        for (int m = 0; m < 3; m++)
            matrices[m][i] = zeroed(rows, sizeof **matrices[m]);
        for (int j = 0; j < rows; j++) {
            left[i][j] = i + j;
            right[i][j] = i - j;
        }
    }
    for (int time = 0; time < times; time++)
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < rows; j++) {
                double sum = 0;
                for (int k = 0; k < rows; k++)
                    sum += left[i][k] * right[k][j];
                product[i][j] += sum;
            }
    for (int i = 0; i < rows; i++)
        trace += product[i][i];
    printf("%g\n", trace);
    return 0;
}
