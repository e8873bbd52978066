# Takes orders. A cache remembers each customer's last ones, and nobody takes them out again.
import json


class Customers:
    def __init__(self):
        self.last_orders = {}

    def remember(self, order):
        key = order["customer"], order["number"]
        self.last_orders[key] = order


def read(line):
    return json.loads(line)


def orders(count):
    for number in range(count):
        order = {"number": number, "customer": "c%d" % (number % 700), "text": "x" * 900}
        yield json.dumps(order)


def main():
    customers = Customers()
    total = 0
    for line in orders(20000):
        order = read(line)
        total += len(order["text"])
        if order["number"] % 2:
            customers.remember(order)
    print(total, len(customers.last_orders))
    return customers


customers = main()
