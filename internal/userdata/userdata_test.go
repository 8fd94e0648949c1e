package userdata

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"strings"
	"testing"

	"croft"
)

func packed(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const twoParts = "Content-Type: multipart/mixed; boundary=\"=x=\"\nMIME-Version: 1.0\n\n" +
	"--=x=\nContent-Type: text/cloud-config\n\n#cloud-config\nhostname: a\n\n" +
	"--=x=\nContent-Type: text/x-shellscript\n\n#!/bin/sh\necho hello\n\n--=x=--\n"

func TestCheck(t *testing.T) {
	script := []byte("#!/bin/sh\necho hello\n")
	tests := []struct {
		name string
		data []byte
		want string // in the error; empty: valid
	}{
		{"nothing is right", nil, ""},
		{"a script", script, ""},
		{"cloud-config", []byte("#cloud-config\npackages: [nginx]\n"), ""},
		{"cloud-config of comments", []byte("#cloud-config\n# later\n"), ""},
		{"cloud-config with a line end of Windows", []byte("#cloud-config\r\npackages: [nginx]\r\n"), ""},
		{"a script for early in the boot", []byte("#cloud-boothook\n#!/bin/sh\necho hello\n"), ""},
		{"gzip of a script", packed(t, script), ""},
		{"MIME", []byte(twoParts), ""},
		{"what only the guest knows", []byte(`{"ignition": {"version": "3.3.0"}}`), ""},
		{"a template", []byte("## template: jinja\n#cloud-config\nhostname: {{ v1.name }}\n"), ""},
		{"the greatest", bytes.Repeat([]byte("#"), croft.MaxUserData), ""},

		{"one byte too much", bytes.Repeat([]byte("#"), croft.MaxUserData+1), "65536 are the most"},
		{"cloud-config that is not YAML", []byte("#cloud-config\npackages: [nginx\n"), "is not YAML: yaml: line "},
		{"cloud-config with a tab", []byte("#cloud-config\nusers:\n\t- jo\n"), "is not YAML: yaml: line 3"},
		{"cloud-config that is a list", []byte("#cloud-config\n- nginx\n"), "no key: value in line 2"},
		{"cloud-config in other words", []byte("# cloud-config\npackages: [nginx]\n"),
			`begins with "# cloud-config", and cloud-init ignores`},
		{"cloud-config without its header", []byte("users:\n- name: jo\npackages: [htop]\n"),
			"begins with users of cloud-config and not with #cloud-config"},
		{"cloud-config without its header, behind a comment", []byte("# mine\n---\nruncmd: [ls]\n"),
			"begins with runcmd of cloud-config"},
		{"cloud-config misspelt", []byte("#cloud_config\npackages: [nginx]\n"), "cloud-init ignores"},
		{"bytes that are no text", []byte{0xff, 0xfe, 'a', 0}, "neither UTF-8 text nor gzip"},
		{"a zero byte", []byte("#!/bin/sh\x00\n"), "neither UTF-8 text nor gzip"},
		{"a byte order mark", []byte("\xef\xbb\xbf#cloud-config\n"), "byte order mark"},
		{"a script behind an empty line", []byte("\n#!/bin/sh\necho hello\n"), "has #! in line 2 behind blanks"},
		{"a script behind blanks", []byte("  #!/bin/sh\necho hello\n"), "has #! in line 1 behind blanks"},
		{"a script from Windows", []byte("#!/bin/sh\r\necho hello\r\n"), "line ends of Windows"},
		{"gzip cut short", packed(t, script)[:20], "does not unpack"},
		{"gzip of gzip", packed(t, packed(t, script)), "compressed twice"},
		{"gzip of bytes that are no text", packed(t, []byte{0xff, 0xfe}), "neither UTF-8 text"},
		{"gzip of cloud-config that is not YAML", packed(t, []byte("#cloud-config\na: [")), "is not YAML"},
		{"a bomb", packed(t, make([]byte, 40<<20)), "more than 1048576 bytes"},
		{"MIME without a boundary", []byte("Content-Type: multipart/mixed\n\nx\n"), "names no boundary"},
		{"MIME without its parts", []byte("Content-Type: multipart/mixed; boundary=x\n\nx\n"), "part 1 cannot be read"},
		{"MIME cut short", []byte(twoParts[:len(twoParts)-8]), "does not decode: unexpected EOF"},
		{"MIME with cloud-config that is not YAML", []byte(strings.Replace(twoParts, "hostname: a", "hostname: [", 1)),
			"is not YAML"},
		{"MIME in base64 that is none",
			[]byte("Content-Type: text/cloud-config\nContent-Transfer-Encoding: base64\n\n$$$\n"), "does not decode"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Check(tt.data)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.want != "" && (!errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want %q of kind invalid", err, tt.want)
			}
		})
	}
}

// leaves reads all leaf parts, as cloud-init walks them: type and text.
func leaves(t testing.TB, contentType string, body io.Reader, encoding string) (all []string) {
	t.Helper()
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(kind, "multipart/") {
		if encoding == "base64" {
			body = base64.NewDecoder(base64.StdEncoding, body)
		}
		text, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		return []string{kind + " " + string(text)}
	}
	for r := multipart.NewReader(body, params["boundary"]); ; {
		p, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, leaves(t, p.Header.Get("Content-Type"), p, p.Header.Get("Content-Transfer-Encoding"))...)
	}
}

func read(t testing.TB, message []byte) []string {
	t.Helper()
	m, err := mail.ReadMessage(bytes.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	return leaves(t, m.Header.Get("Content-Type"), m.Body, m.Header.Get("Content-Transfer-Encoding"))
}

func TestJoinKeepsEachPieceAsItIs(t *testing.T) {
	config := "#cloud-config\nwrite_files: [{path: /x, content: \"" + strings.Repeat("ü", 100) + "\"}]\n"
	zipped := packed(t, []byte("#!/bin/sh\n"))
	joined := Join(Part{"a", []byte(config)}, Part{"b", []byte(twoParts)}, Part{"c", zipped},
		Part{"d", []byte("#include\nhttp://x/\n")})
	want := []string{
		"text/cloud-config " + config,
		"text/cloud-config #cloud-config\nhostname: a\n",
		"text/x-shellscript #!/bin/sh\necho hello\n",
		"application/gzip " + string(zipped),
		"text/plain #include\nhttp://x/\n",
	}
	got := read(t, joined)
	if strings.Join(got, "\x00") != strings.Join(want, "\x00") {
		t.Errorf("the parts are %q, want %q", got, want)
	}
	if err := Check(joined); err != nil {
		t.Errorf("what Join makes is not right to Check: %v", err)
	}
	if again := Join(Part{"a", []byte(config)}, Part{"b", []byte(twoParts)}, Part{"c", zipped},
		Part{"d", []byte("#include\nhttp://x/\n")}); !bytes.Equal(again, joined) {
		t.Error("the same pieces give other bytes")
	}
}

// FuzzCheck requires that Check never panics, and that data it accepts can be joined with another piece unchanged.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{"", "#!/bin/sh\n", "#cloud-config\na: b\n", twoParts, "Content-Type: x\n\n",
		string(packed(f, []byte("#!")))} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if Check(data) != nil {
			return
		}
		joined := Join(Part{"ours", []byte("#!/bin/sh\n: ours\n")}, Part{"theirs", data})
		m, err := mail.ReadMessage(bytes.NewReader(joined))
		if err != nil {
			t.Fatalf("%q joined cannot be read: %v", data, err)
		}
		_, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
		if err != nil {
			t.Fatal(err)
		}
		first, err := multipart.NewReader(m.Body, params["boundary"]).NextRawPart()
		if err != nil {
			t.Fatalf("%q joined has no first part: %v", data, err)
		}
		text, err := io.ReadAll(base64.NewDecoder(base64.StdEncoding, first))
		if err != nil || string(text) != "#!/bin/sh\n: ours\n" {
			t.Errorf("our part is %q, %v", text, err)
		}
	})
}
