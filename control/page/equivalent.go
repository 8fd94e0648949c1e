package page

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"croft"
	"croft/control/api"
	"croft/internal/lazyregexp"
	"croft/internal/shell"
	"croft/internal/wording"
	"croft/tenant/objects"
)

// equivalent is a text that makes the same request as a form.
type equivalent struct {
	ID, Title string
	Text      string
	Note      string
}

// same is a request of a form, to be written as texts for other programs.
type same struct {
	project    croft.Project // of the address; empty: the token decides
	home       croft.Project // the project that it is for
	request    api.InstanceRequest
	properties []string // key=value
	labels     map[string]*objects.Value
}

// texts writes the request as a command, as a call of the API and for OpenTofu. A text with characters that a terminal
// obeys is withheld: it could do more than it shows where it is pasted.
func (s same) texts() ([]equivalent, error) {
	call, err := s.call()
	if err != nil {
		return nil, err
	}
	tofu, err := s.tofu()
	if err != nil {
		return nil, err
	}
	command := equivalent{ID: "same-command", Title: "Command", Text: s.command()}
	if len(s.request.Keys) == 0 {
		command.Note = "Without --key, schedule gives the guest the SSH keys of the user who runs it."
	}
	all := []equivalent{command, {ID: "same-call", Title: "API", Text: call}, {ID: "same-tofu", Title: "OpenTofu",
		Text: tofu, Note: "CROFT_TOKEN has the token."}}
	for n := range all {
		all[n].withhold()
	}
	return all, nil
}

// withhold removes a text that a terminal could obey.
func (e *equivalent) withhold() {
	if strings.ContainsFunc(e.Text, func(r rune) bool { return hidden(r) && r != '\n' && r != '\t' }) {
		e.Text, e.Note = "", "Not shown: a field has invisible characters, which a terminal could obey."
	}
}

// command returns the command line of schedule for a shell.
func (s same) command() string {
	r, words := s.request, []string{"croft", "schedule"}
	if r.Query == "" && r.Size == "" { // schedule with a lone word shows an instance
		words = []string{"croft", "instance", "create"}
	}
	for _, word := range []string{r.Query, r.Image} {
		if word != "" {
			words = append(words, shellWord(word))
		}
	}
	flag := func(name string, values ...string) {
		for _, value := range values {
			if value != "" {
				words = append(words, "--"+name, shellWord(value))
			}
		}
	}
	on := func(name string, is bool) {
		if is {
			words = append(words, "--"+name)
		}
	}
	flag("project", string(s.project))
	flag("name", r.Name)
	flag("size", r.Size)
	flag("policy", r.Policy)
	flag("key", r.Keys...)
	flag("network", r.Networks...)
	flag("address", r.FixedAddress)
	flag("open", r.Open...)
	for _, name := range r.Volumes {
		flag("volume", name+mountOf(r, name))
	}
	for _, d := range r.Disks {
		size := strconv.FormatInt(d.SizeGB, 10) + "G"
		if d.Name != "" {
			size += ":" + d.Name + mountOf(r, d.Name)
		}
		flag("disk", size)
	}
	flag("storage", r.Storage)
	m := r.Machine
	flag("arch", string(m.Arch))
	flag("firmware", string(m.Firmware))
	on("tpm", m.TPM)
	flag("display", string(m.Display))
	flag("devices", string(m.Devices))
	flag("os", string(m.OS))
	flag("iso", m.ISO)
	flag("boot", string(m.Boot))
	flag("restart", string(r.Restart))
	flag("metadata", string(r.Metadata))
	flag("imds", string(r.IMDS))
	on("ephemeral", r.Ephemeral)
	on("protect", r.Protected)
	for _, a := range r.Affinities {
		rule, soft := strings.CutSuffix(string(a.Rule), "-soft")
		if soft {
			a.Group += ":soft"
		}
		flag(rule, a.Group)
	}
	for _, key := range slices.Sorted(maps.Keys(r.Tags)) {
		flag("tag", key+"="+r.Tags[key])
	}
	flag("property", s.properties...)
	if r.Expires > 0 {
		flag("expires", wording.Duration(time.Duration(r.Expires)*time.Second))
	}
	if len(r.UserData) > 0 {
		flag("user-data", "-")
	}
	line := strings.Join(words, " ")
	if len(r.UserData) > 0 {
		end := endOf(string(r.UserData))
		line += " <<'" + end + "'\n" + string(r.UserData) + end
	}
	return line + "\n"
}

// mountOf returns where a volume is mounted, as --volume and --disk have it.
func mountOf(r api.InstanceRequest, volume string) string {
	for _, m := range r.Mounts {
		if m.Volume == volume && m.Filesystem != "" {
			return ":" + m.Path + ":" + m.Filesystem
		}
		if m.Volume == volume {
			return ":" + m.Path
		}
	}
	return ""
}

// endOf returns a word that no line of a text is, to end a here-document.
func endOf(text string) string {
	lines := strings.Split(text, "\n")
	end := "END"
	for n := 1; slices.Contains(lines, end); n++ {
		end = "END" + strconv.Itoa(n)
	}
	return end
}

var plainWord = lazyregexp.New(`^-$|^[A-Za-z0-9_@%+:,./][A-Za-z0-9_@%+=:,./-]*$`)

// shellWord quotes a word for a POSIX shell, where it needs that.
func shellWord(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return shell.Quote(word)
}

// bodies returns the bodies of the request, and of the change that sets the properties; empty: there are none.
func (s same) bodies(prefix string) (request, change string, err error) {
	if request, err = jsonText(s.request, prefix); err == nil && len(s.labels) > 0 {
		change, err = jsonText(api.InstancePatch{Labels: s.labels}, prefix)
	}
	return request, change, err
}

// jsonText writes a value as people read it: without escapes that only HTML needs. Each line but the first starts with
// prefix.
func jsonText(v any, prefix string) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return string(indented(bytes.TrimSuffix(b.Bytes(), []byte("\n")), prefix)), err
}

// mostIndented is the deepest nesting of JSON that is indented. Each line begins with spaces for its depth, so a deep
// document of some KiB would take gigabytes.
const mostIndented = 32

// indented returns a JSON document with a line for each value. Other texts, and documents that are nested deeper than
// mostIndented, stay as they are.
func indented(text []byte, prefix string) []byte {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '[' || c == '{'):
			depth++
		case !quoted && (c == ']' || c == '}'):
			depth--
		}
		if depth > mostIndented {
			return text
		}
	}
	var b bytes.Buffer
	if json.Indent(&b, text, prefix, "  ") != nil {
		return text
	}
	return b.Bytes()
}

// curl is the beginning of a call of the API, for a shell.
const curl = `curl -fsS -H "Authorization: Bearer $CROFT_TOKEN" `

// call returns the calls of the API with curl, for a shell.
func (s same) call() (string, error) {
	s.request.ID = "" // the server chooses one
	name := s.request.Name
	if name == "" && len(s.labels) > 0 { // the second call needs one of both
		s.request.ID = croft.NewInstanceID()
		name = string(s.request.ID)
	}
	request, change, err := s.bodies("")
	if err != nil {
		return "", err
	}
	in := ""
	if s.project != "" {
		in = "?project=" + url.QueryEscape(string(s.project))
	}
	text := curl + `"$CROFT_URL"` + shellWord("/v1/instances"+in) + " --json " + shellWord(request) + "\n"
	if change != "" {
		text += curl + `-X PATCH "$CROFT_URL"` + shellWord("/v1/instances/"+name+in) + " --json " + shellWord(change) + "\n"
	}
	return text, nil
}

// tofu returns a resource of OpenTofu, as the documents have it.
func (s same) tofu() (string, error) {
	s.request.ID = "" // the text derives it
	request, change, err := s.bodies("  ")
	if err != nil {
		return "", err
	}
	name, set, properties := cmp.Or(s.request.Name, "instance"), "", ""
	label, in := name, ""
	if unicode.IsDigit(rune(label[0])) {
		label = "vm-" + label
	}
	if s.project != "" {
		in = "&project=" + url.QueryEscape(string(s.project))
	}
	if change != "" {
		properties = fmt.Sprintf("  %s-properties = %s\n", label, inHCL(change))
		set = fmt.Sprintf(tofuChange, label)
	}
	return fmt.Sprintf(tofuText, label, name+"."+string(s.home), inHCL(request), properties, in, set), nil
}

// tofuText is the text for OpenTofu: %[1]s is the name of the resource, %[2]s what its UUID is derived from, %[3]s the
// request, %[4]s the properties, %[5]s the project and %[6]s what sets the properties.
const tofuText = `variable "url" {} # such as https://cloud.example:8781

locals {
  %[1]s = merge({ id = uuidv5("dns", "%[2]s") }, %[3]s)
%[4]s}

resource "terraform_data" "%[1]s" {
  triggers_replace = local.%[1]s
  input            = { url = var.url, id = local.%[1]s.id }
  provisioner "local-exec" {
    interpreter = ["bash", "-c"]
    environment = { URL = var.url, BODY = jsonencode(local.%[1]s) }
    command     = <<-END
      curl -fsS -o /dev/null -H @<(echo "Authorization: Bearer $CROFT_TOKEN") --json "$BODY" "$URL/v1/instances?wait=running%[5]s"
    END
  }%[6]s
  provisioner "local-exec" {
    when        = destroy
    interpreter = ["bash", "-c"]
    environment = { URL = self.output.url, ID = self.output.id }
    command     = <<-END
      curl -fsS -o /dev/null -H @<(echo "Authorization: Bearer $CROFT_TOKEN") -X DELETE "$URL/v1/instances/$ID?wait=gone"
    END
  }
}
`

// tofuChange sets the properties of the instance; %[1]s is the name of the resource.
const tofuChange = `
  provisioner "local-exec" {
    interpreter = ["bash", "-c"]
    environment = { URL = var.url, ID = local.%[1]s.id, BODY = jsonencode(local.%[1]s-properties) }
    command     = <<-END
      curl -fsS -o /dev/null -H @<(echo "Authorization: Bearer $CROFT_TOKEN") -X PATCH --json "$BODY" "$URL/v1/instances/$ID"
    END
  }`

// inHCL returns JSON as an expression of OpenTofu, which reads ${ and %{ in texts as the start of a template.
func inHCL(text string) string {
	return strings.NewReplacer("${", "$${", "%{", "%%{").Replace(text)
}
