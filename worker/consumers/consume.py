"""Reads the signals of a subscription: AMQP_URL=amqp://… QUEUE=acme.crm python3 consume.py

Needs pika. A signal can come twice, under one id: do what you do for it once for each id.
"""

import json
import os
import sys
import time

import pika

URL, QUEUE = os.environ["AMQP_URL"], os.environ["QUEUE"]


def process(signal_id, properties, body):
    """Your part. If it raises, the signal comes again."""
    print(json.dumps({"id": signal_id, "kind": properties.type, "body": body.decode()}), flush=True)


def on_message(channel, method, properties, body):
    process(properties.message_id, properties, body)
    # Only now: a message that is not acknowledged comes again.
    channel.basic_ack(method.delivery_tag)


while True:
    try:
        connection = pika.BlockingConnection(pika.URLParameters(URL))
        channel = connection.channel()
        channel.basic_qos(prefetch_count=100)
        channel.basic_consume(QUEUE, on_message)
        channel.start_consuming()
    except pika.exceptions.AMQPError as error:
        print(f"connecting again: {error!r}", file=sys.stderr)
        time.sleep(2)
