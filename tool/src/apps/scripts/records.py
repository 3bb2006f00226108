# Builds and drops records, and writes and reads them as JSON.
import hashlib
import json
import sys

records = {}
for number in range(int(sys.argv[1])):
    records["key%d" % (number % 5000)] = {
        "id": number,
        "name": "name %d" % number,
        "tags": [str(tag) for tag in range(number % 7)],
        "score": number * 0.5,
    }
    if number % 10 == 0:
        text = json.dumps(list(records.values())[:20], sort_keys=True)
        assert json.loads(text)[0]["id"] >= 0
print(len(records), hashlib.sha256(json.dumps(records, sort_keys=True).encode()).hexdigest())
