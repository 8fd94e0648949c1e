package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// answers caches QEMU's answers, by the digest of the question, in a file per version of QEMU: one process
// for each of thousands of images takes minutes, and the same program gives the same answer for the same
// bytes. Each run asks for some of the images only, so an answer is kept until forgotten runs have not used it.
type answers struct {
	file string // empty: no cache

	mu   sync.Mutex
	old  map[string]answer // of earlier runs, and not used yet in this one
	used map[string]answer // of this run
}

// answer is a cached reading.
type answer struct {
	reading
	Unused int `json:",omitempty"` // by how many of the latest runs
}

// forgotten is the number of runs after which an unused answer is dropped. With samples of a third, the same image is
// rarely left out that often.
const forgotten = 10

// openAnswers reads the answers of earlier runs. make soak ignores them.
func openAnswers(t *testing.T) *answers {
	t.Helper()
	a := &answers{old: map[string]answer{}, used: map[string]answer{}}
	version, err := exec.CommandContext(t.Context(), "qemu-img", "--version").Output()
	dir, noCache := os.UserCacheDir()
	if err != nil || noCache != nil || os.Getenv("CROFT_SOAK") != "" {
		return a
	}
	a.file = filepath.Join(dir, "croft", "qemu-img-"+sha(version)[:16]+".json")
	if text, err := os.ReadFile(a.file); err == nil && json.Unmarshal(text, &a.old) != nil {
		a.old = map[string]answer{} // truncated, or of another format
	}
	return a
}

// ask is askQEMU for questions without a cached answer.
func (a *answers) ask(questions ...question) ([]reading, error) {
	all := make([]reading, len(questions))
	var asked []question
	var at []int
	for i, q := range questions {
		known, ok := a.known(q)
		if all[i] = known; !ok {
			asked, at = append(asked, q), append(at, i)
		}
	}
	if len(asked) == 0 {
		return all, nil
	}
	got, err := askQEMU(asked...)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, r := range got {
		all[at[i]] = r
		a.used[asked[i].digest()] = answer{reading: r}
	}
	return all, nil
}

func (a *answers) known(q question) (reading, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	digest := q.digest()
	known, ok := a.old[digest]
	if !ok {
		known, ok = a.used[digest]
	}
	if ok {
		delete(a.old, digest)
		a.used[digest] = answer{reading: known.reading}
	}
	return known.reading, ok
}

func (q question) digest() string {
	h := sha256.New()
	h.Write([]byte(q.format + "\x00"))
	h.Write(q.content)
	return hex.EncodeToString(h.Sum(nil))
}

// keep stores the answers used in this run, and earlier ones that have not been forgotten. If it fails, the next run
// asks again.
func (a *answers) keep(t *testing.T) {
	t.Helper()
	if a.file == "" {
		return
	}
	for digest, old := range a.old {
		if old.Unused++; old.Unused < forgotten {
			a.used[digest] = old
		}
	}
	text, err := json.Marshal(a.used)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(a.file), 0o755)
	}
	if err == nil {
		err = os.WriteFile(a.file+".new", text, 0o644)
	}
	if err == nil {
		err = os.Rename(a.file+".new", a.file)
	}
	if err != nil {
		t.Logf("keep QEMU's answers: %v", err)
	}
}
