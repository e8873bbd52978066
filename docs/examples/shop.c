/* A shop that never forgets an order: the program that the guide records. ./shop [ORDERS]
 *
 * gcc -O1 -g -o shop shop.c
 */
#include <stdlib.h>
#include <string.h>

struct order {
    char *customer;
    long price;
    struct order *next;
};

static struct order *orders;

__attribute__((noinline)) static char *read_customer(int i) {
    char *name = malloc(200);
    memset(name, 'a' + i % 26, 199);
    name[199] = 0;
    return name;
}

__attribute__((noinline)) static void take_order(int i) {
    struct order *order = malloc(sizeof *order);
    order->customer = read_customer(i);
    order->price = i;
    order->next = orders;
    orders = order;
}

__attribute__((noinline)) static long add_up(int count) {
    long *prices = malloc(count * sizeof *prices), sum = 0;
    struct order *order = orders;
    for (int i = 0; i < count; i++, order = order->next)
        prices[i] = order->price;
    for (int i = 0; i < count; i++)
        sum += prices[i];
    free(prices);
    return sum;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 1000;
    for (int i = 0; i < count; i++)
        take_order(i);
    return add_up(count) == 0;
}
