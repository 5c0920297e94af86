# SPDX-License-Identifier: Apache-2.0
"""A Django application under gunicorn with PostgreSQL, and its client.

    gunicorn --chdir calibrate/workloads webshop:application   the server
    python3 webshop.py client HOST PORT REQUESTS               sends requests, one after the other

The server finds its database by PGHOST, PGPORT, PGUSER, PGDATABASE. A request
for /order computes in Python (apply_discounts), lets the database compute
(sum_history) and commits a row to disk (store_order). It tells on its response
how long each took by its own clock, so that a path through it can be judged.
"""

import json
import os
import sys
import time

COMPUTE_S = 0.020


def clock_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def apply_discounts(seconds):
    end = time.thread_time() + seconds
    total = 0
    while time.thread_time() < end:
        for i in range(500):
            total += i % 7
    return total


def sum_history(cursor):
    cursor.execute("SELECT sum(i % 7) FROM generate_series(1, 400000) AS i")
    return cursor.fetchone()[0]


def store_order(cursor, total):
    cursor.execute("INSERT INTO orders (total) VALUES (%s)", [total])


def order(request):
    from django.db import connection
    from django.http import JsonResponse

    times = [clock_ns()]
    total = apply_discounts(COMPUTE_S)
    times.append(clock_ns())
    with connection.cursor() as cursor:
        history = sum_history(cursor)
        times.append(clock_ns())
        store_order(cursor, total)
    times.append(clock_ns())
    names = ("apply_discounts", "sum_history", "store_order")
    return JsonResponse({
        "history": int(history),
        "ns": {n: b - a for n, a, b in zip(names, times, times[1:])},
    })


def make_application():
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.urls import path

    settings.configure(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF="webshop",
        SECRET_KEY="of a test",
        DATABASES={"default": {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": os.environ["PGHOST"],
            "PORT": os.environ["PGPORT"],
            "USER": os.environ["PGUSER"],
            "NAME": os.environ["PGDATABASE"],
            "CONN_MAX_AGE": None,
        }},
    )
    django.setup()
    global urlpatterns
    urlpatterns = [path("order", order)]
    return get_wsgi_application()


def send_request(host, port):
    import http.client

    connection = http.client.HTTPConnection(host, port)
    connection.request("GET", "/order")
    response = connection.getresponse()
    body = response.read()
    connection.close()
    if response.status != 200:
        raise SystemExit(body.decode(errors="replace")[:2000])
    return json.loads(body)["ns"]


def client(host, port, requests):
    send_request(host, port)
    print("ready", flush=True)
    sys.stdin.readline()
    begin = clock_ns()
    truth = {}
    for _ in range(requests):
        for name, ns in send_request(host, port).items():
            truth[name] = truth.get(name, 0) + ns
    print(json.dumps({"wall_ns": clock_ns() - begin, "ns": truth}), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    client(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
else:
    application = make_application()
