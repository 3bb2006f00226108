// A matrix product by columns: matrices of double whose rows are blocks, as `double **` and `vector<vector<double>>` have them. Going down a column, a program touches one cache line of each row.
//
// usage: columns ROWS TIMES
#include <stdio.h>
#include <stdlib.h>

static double **matrix(int rows) {
    double **all = malloc(rows * sizeof *all);
    for (int i = 0; all && i < rows; i++) {
        all[i] = malloc(rows * sizeof **all);
        if (!all[i])
            abort();
        for (int j = 0; j < rows; j++)
            all[i][j] = i - j;
    }
    if (!all)
        abort();
    return all;
}

int main(int count, char **argument) {
    int rows = count > 1 ? atoi(argument[1]) : 0, times = count > 2 ? atoi(argument[2]) : 0;
    if (rows < 1 || times < 1) {
        fputs("usage: columns ROWS TIMES\n", stderr);
        return 2;
    }
    double **left = matrix(rows), **right = matrix(rows), **product = matrix(rows), trace = 0;
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
