# A Flask application that keeps a list for each request.
import os
import sys

from flask import Flask

app = Flask(__name__)
kept = []


@app.route("/")
def leak_one():
    kept.append([f"row {i} of the request" for i in range(1000)])
    return "kept\n"


@app.route("/quit")
def quit():
    os._exit(0)


app.run(port=int(sys.argv[1]))
