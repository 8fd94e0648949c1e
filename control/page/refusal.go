package page

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"croft"
	"croft/internal/lazyregexp"
	"croft/tenant/access"
)

// refusal is why something was not done, and what the page offers against it.
type refusal struct {
	Says     string
	Request  string // the ID of the refused request
	Remedies []deed
	Problems problems // of fields of the form
}

// Bad returns the attribute that marks a field, if it is wrong.
func (r refusal) Bad(field string) template.HTMLAttr {
	if r.Problems.about(field) == "" {
		return ""
	}
	return ` aria-invalid="true"`
}

// problem is a fault of a field, which has this ID on its page.
type problem struct{ Field, Label, Says string }

// String returns the problem as a sentence.
func (p problem) String() string {
	if p.Label == "" {
		return p.Says
	}
	return p.Label + ": " + p.Says
}

// problems are the faults of a form. As an error they are Invalid.
type problems []problem

// Error implements error.
func (p problems) Error() string {
	var all []string
	for _, one := range p {
		all = append(all, one.String())
	}
	return strings.Join(all, "; ")
}

// Unwrap returns the kind.
func (p problems) Unwrap() error { return croft.Invalid }

// about returns the fault of a field; empty: it is correct.
func (p problems) about(field string) string {
	for _, one := range p {
		if one.Field == field {
			return one.Says
		}
	}
	return ""
}

// wrongField is an error about one field, whose name the text has.
func wrongField(field, format string, args ...any) error {
	return problems{{Field: field, Says: fmt.Sprintf(format, args...)}}
}

// remedy is what the page has in place of a command that an error names.
type remedy struct {
	Command string // the beginning of the command
	Does    string // the words of the link
	At      string // path; {name} is the command's last word, or the object of the page
}

// remedies lists what the page has in place of commands. Of those that a command begins with, the longest counts.
var remedies = []remedy{
	{"schedule stop", "Stop the instance", "/instances/{name}"},
	{"schedule start", "Start the instance", "/instances/{name}"},
	{"schedule eject", "Eject the CD", "/instances/{name}"},
	{"schedule reboot", "Reboot the instance", "/instances/{name}"},
	{"schedule move --cancel", "Cancel the move", "/instances/{name}"},
	{"schedule show", "Show the instance", "/instances/{name}"},
	{"schedule protect --off", "End the protection", "/instances/{name}#h-keep"},
	{"schedule keep", "Change the expiry", "/instances/{name}#h-keep"},
	{"schedule move", "Move the instance", "/instances/{name}/move"},
	{"schedule remove", "Remove the instance", "/instances/{name}/remove"},
	{"schedule rebuild", "Rebuild the instance", "/instances/{name}/rebuild"},
	{"schedule recreate", "Recreate the instance", "/instances/{name}/recreate"},
	{"schedule logs", "Log of the guest", "/instances/{name}/log"},
	{"schedule console", "Console of the guest", "/instances/{name}/console"},
	{"schedule screen", "Screen of the guest", "/instances/{name}/screen"},
	{"schedule list --state lost", "Lost instances", "/instances?state=lost"},
	{"schedule list", "Instances", "/instances"},
	{"croft snapshot", "Snapshots of the instance", "/instances/{instance}#h-disks"},
	{"croft volume detach", "Detach the volume", "/volumes/{name}/detach"},
	{"croft volume", "Volumes", "/volumes"},
	{"croft backup store add", "Add a backup store", "/backups/stores/new"},
	{"croft backup", "Backups and their stores", "/backups"},
	{"croft claim", "Claims", "/claims"},
	{"croft image", "Images", "/images"},
	{"croft key", "Keys of the project", "/project#h-keys"},
	{"croft project list", "Projects", "/project"},
	{"croft token create --host", "Invite a host", "/invitations/new"},
	{"croft token list --for api", "Tokens of the project", "/project#h-tokens"},
	{"croft token", "Invitations", "/invitations"},
	{"croft host list", "Hosts", "/hosts"},
	{"croft host leftover", "What lost instances left on the host", "/hosts/{host}#h-disks"},
	{"croft host accept", "Accept the agent", "/hosts/{name}/accept"},
	{"croft host fence --on", "Take the host back", "/hosts/{name}/take-back"},
	{"croft host fence", "Fence the host", "/hosts/{name}/fence"},
	{"croft host remove", "Forget the host", "/hosts/{name}/remove"},
	{"croft host show", "Show the host", "/hosts/{name}"},
	{"croft cluster", "Clusters", "/clusters"},
	{"croft size", "Sizes", "/sizes"},
	{"croft aggregate", "Aggregates", "/aggregates"},
	{"croft policy list", "Policies", "/policies"},
	{"croft definition", "Definitions", "/definitions"},
	{"croft property definition", "Definitions", "/definitions"},
	{"croft partition card", "Card of this cloud", "/peers/card"},
	{"croft partition", "Peers", "/peers"},
	{"croft audit", "Compare all records", "/audit"},
}

// inWordsOfThePage writes the flags of commands as the page calls them.
var inWordsOfThePage = strings.NewReplacer(
	"or add --snapshots", "or choose to remove them with it",
	"confirm that with --confirm-off", "confirm that here",
	"; with --confirm-off, switch it off yourself", ": switch it off yourself, and confirm that here",
	" with --off or --confirm-off declares", " declares",
	"name one with --store", "name one",
	"stop it first, or add --stop", "stop it first",
	"or add --force", "or choose to do it all the same",
	"bring the host back, or add --force if", "bring the host back, or choose to do it all the same if",
	"or mark them as lost with --force", "or choose to do it although they are lost then",
	"no image is named, nor an ISO (--iso) that installs one", "choose an image",
	"an ISO (--iso)", "an ISO",
	"ask for it with --iso (machine.iso)", "only the command `schedule --iso` makes instances from it",
	"it has no CD drive: it was made without --iso", "it has no CD drive",
)

// commandForm matches a command in a sentence.
var commandForm = lazyregexp.New("`((?:croft|schedule) [^`]+)`")

// remediesIn returns links to what the page has for the commands that a sentence names.
func (v *visit) remediesIn(says string) (all []deed) {
	for _, found := range commandForm.Get().FindAllStringSubmatch(says, -1) {
		if d, is := v.remedyFor(found[1]); is && !slices.Contains(all, d) {
			all = append(all, d)
		}
	}
	if strings.Contains(says, "create the instance with --volume") {
		query := []string{}
		if f := v.r.PostForm; f.Get("instance") != "" {
			query = []string{"near", f.Get("instance")}
		} else if id := v.r.PathValue("id"); id != "" {
			query = []string{"near", id}
		}
		all = append(all, deed{Does: "Create a volume on the host of the instance",
			Link: link(v.project, "/volumes/new", query...)})
	}
	return all
}

// remedyFor returns the link to what the page has for a command.
func (v *visit) remedyFor(command string) (deed, bool) {
	var r remedy
	for _, one := range remedies {
		if strings.HasPrefix(command, one.Command) && len(one.Command) > len(r.Command) {
			r = one
		}
	}
	words := slices.DeleteFunc(strings.Fields(command[len(r.Command):]), func(word string) bool {
		return strings.HasPrefix(word, "-") || word == "NAME" || word == "FILE"
	})
	if !v.mayFollow(r.At) {
		return deed{}, false
	}
	path, anchor, _ := strings.Cut(r.At, "#")
	path, query, _ := strings.Cut(path, "?")
	for _, part := range parts(path) {
		value := ""
		switch section, _, _ := strings.Cut(strings.TrimPrefix(v.r.URL.Path, Root+"/"), "/"); {
		case len(words) > 0 && part != "name":
			value = words[0]
		case len(words) > 0:
			value = words[len(words)-1]
		case strings.HasPrefix(path, "/"+section+"/"): // the object of this page
			value = cmp.Or(v.r.PathValue("id"), v.r.PathValue("name"))
		}
		if value == "" {
			return deed{}, false
		}
		path = strings.Replace(path, "{"+part+"}", url.PathEscape(value), 1)
	}
	project := v.project
	if strings.HasPrefix(path, "/hosts") || path == "/invitations" {
		project = ""
	}
	to := link(project, path)
	if query != "" {
		key, value, _ := strings.Cut(query, "=")
		to = link(project, path, key, value)
	}
	if anchor != "" {
		to += "#" + anchor
	}
	return deed{Does: r.Does, Link: to}, true
}

// mayFollow reports whether to offer a page: those of operators only to them, and forms by their rules.
func (v *visit) mayFollow(path string) bool {
	path, _, _ = strings.Cut(path, "#")
	for _, f := range formNamed() {
		if f.At == path {
			return v.may(f)
		}
	}
	for _, l := range listings() {
		if path == "/"+l.Path {
			return access.MayAnywhere(l.May, v.caller.Roles)
		}
	}
	return path != "" && (v.caller.Operator() || !strings.HasPrefix(path, "/hosts") && path != "/audit" &&
		!strings.HasSuffix(path, "/move"))
}

// refusalOf returns what the page says about an error.
func (v *visit) refusalOf(err error) refusal {
	f := failureOf(v.r, err)
	f.Remedies = v.remediesIn(err.Error())
	f.Problems, _ = errors.AsType[problems](err)
	return f.refusal
}

// wayBack returns the address of the page that an error page leads to, and its name.
func wayBack(r *http.Request) (at, name string) {
	section, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, Root), "/"), "/")
	for _, l := range listings() {
		if l.Path == section && "/"+section != strings.TrimPrefix(r.URL.Path, Root) {
			return Root + "/" + section, l.Title
		}
	}
	if section == "hosts" {
		return Root + "/hosts", "Hosts"
	}
	return Root, "Instances"
}
