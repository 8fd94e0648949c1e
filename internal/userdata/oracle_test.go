package userdata

import (
	"bytes"
	"encoding/base64"
	"os/exec"
	"strings"
	"testing"
)

// judge prints for each base64 line whether cloud-init applies the user-data in it.
const judge = `
import base64, logging, sys
logging.disable(logging.CRITICAL)
from cloudinit import user_data, util
def applied(data):
    seen = []
    for part in user_data.UserDataProcessor({}).process(data).walk():
        if user_data.is_skippable(part): continue
        kind = part.get_content_type()
        if kind == "text/cloud-config":
            seen.append(isinstance(util.load_yaml(util.fully_decoded_payload(part), default=None), dict))
        else:
            seen.append(kind not in ("text/x-not-multipart", "text/plain"))
    return seen != [] and all(seen)
for line in sys.stdin:
    try: print(applied(base64.b64decode(line)), flush=True)
    except Exception: print(False, flush=True)
`

// TestCheckJudgesAsCloudInitDoes compares Check with cloud-init's own code, version 22.4 in Debian 12.
func TestCheckJudgesAsCloudInitDoes(t *testing.T) {
	const python = "/usr/bin/python3" // the interpreter for which Debian's packages are installed
	if err := exec.CommandContext(t.Context(), python, "-c", "import cloudinit.user_data").Run(); err != nil {
		t.Skip("cloud-init is not on this machine: scripts/install-deps test installs it")
	}
	samples := []string{
		"#cloud-config\nhostname: a\n",
		"---\n#cloud-config\nhostname: a\n",
		"%YAML 1.1\n---\n#cloud-config\nhostname: a\n",
		"# my settings\n#cloud-config\nhostname: a\n",
		"\n\n  #cloud-config\nhostname: a\n",
		"#cloud-config\n---\nhostname: a\n",
		"#cloud-config\nhostname: a\n---\nruncmd: [id]\n",
		"#cloud-config\nhostname: a\n---\n",
		"#cloud-config\nhostname: a\n...\n",
		"#CLOUD-CONFIG\nhostname: a\n",
		"#Cloud-Config \nhostname: a\n",
		"#cloud-config for web\nhostname: a\n",
		"# cloud-config\nhostname: a\n",
		"#cloud_config\nhostname: a\n",
		"\xef\xbb\xbf#cloud-config\nhostname: a\n",
		"#cloud-config\r\nhostname: a\r\n",
		"#cloud-config\n- hostname\n",
		"#cloud-config\nhostname: [\n",
		"#cloud-config\n\thostname: a\n",
		"#cloud-config\nhostname: !secret a\n",
		"#cloud-config\nhostname: !!str a\nwhen: !!binary YQ==\n",
		"#cloud-config\nhostname: a\nhostname: b\n",
		"#cloud-config\nbase: &b {a: 1}\nmore: {<<: *b}\n",
		"#!/bin/sh\nid\n",
		twoParts,
		strings.Replace(twoParts, "MIME-Version: 1.0\n", "", 1),
		strings.Replace(twoParts, "hostname: a", "hostname: a\n---\nb: c", 1),
		string(packed(t, []byte("#cloud-config\nhostname: a\n"))),
		string(packed(t, []byte("---\n#cloud-config\nhostname: a\n"))),
	}
	var lines bytes.Buffer
	for _, s := range samples {
		lines.WriteString(base64.StdEncoding.EncodeToString([]byte(s)) + "\n")
	}
	ask := exec.CommandContext(t.Context(), python, "-c", judge)
	ask.Stdin = &lines
	said, err := ask.Output()
	verdicts := strings.Fields(string(said))
	if err != nil || len(verdicts) != len(samples) {
		t.Fatalf("cloud-init said %q, %v", said, err)
	}
	for i, s := range samples {
		if err := Check([]byte(s)); (err == nil) != (verdicts[i] == "True") {
			t.Errorf("%q: croft says %v, cloud-init applies it: %s", s, err, verdicts[i])
		}
	}
}
