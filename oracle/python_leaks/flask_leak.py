# A Flask application that remembers each visit for ever, several calls below its handler.
from flask import Flask, request

import visits

app = Flask(__name__)


@app.route("/visit/<int:number>")
def visit(number):
    answer = visits.handle(number, request.headers.get("User-Agent", ""))
    return {"number": number, "answer": answer, "padding": "x" * (number % 500)}
