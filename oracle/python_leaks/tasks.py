# A worker of celery whose task remembers its results for ever. usage: tasks.py FIRST COUNT sends
# tasks and prints what came back.
import os
import sys

from celery import Celery

import visits

FOLDER = os.environ["LEAKS_FOLDER"]
app = Celery("tasks", broker="filesystem://", backend="file://" + FOLDER + "/results")
app.conf.broker_transport_options = {
    "data_folder_in": FOLDER + "/queue",
    "data_folder_out": FOLDER + "/queue",
    "control_folder": FOLDER + "/control",
}
app.conf.task_serializer = app.conf.result_serializer = "json"


@app.task(name="tasks.visit")
def visit(numbers):
    return [visits.handle(number, "celery") for number in numbers]


if __name__ == "__main__":
    first, count, each = int(sys.argv[1]), int(sys.argv[2]), 20
    sent = [
        visit.delay(list(range(number, number + each)))
        for number in range(first, first + count, each)
    ]
    for result in sent:
        print(result.get(timeout=60, interval=0.05))
