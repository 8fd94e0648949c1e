#!/bin/sh
# Tells the host of this virtual machine how its set-up by cloud-init ended. It
# goes on in the background until that is known, since it is part of the set-up.
python=$(sed -n '1s/^#! *//p' "$(command -v cloud-init)")
# shellcheck disable=SC2086 # an interpreter with its flags
${python:-python3} - >/dev/null 2>&1 <<'END' &
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request

RESULT = "/run/cloud-init/result.json"
URL = "http://169.254.169.254/croft/v1/phone-home"

while not os.path.exists(RESULT):
    time.sleep(0.5)
with open(RESULT) as f:
    errors = json.load(f)["v1"]["errors"]
form = {"state": "failed" if errors else "done", "error": "; ".join(str(e) for e in errors)[:500]}
body = urllib.parse.urlencode(form).encode()
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for wait in (1, 2, 4, 8, 16, 0):
    try:
        direct.open(URL, body, timeout=10).close()
        break
    except urllib.error.HTTPError as e:
        if e.code < 500 and e.code != 429:
            break
    except OSError:
        pass
    time.sleep(wait)
END
