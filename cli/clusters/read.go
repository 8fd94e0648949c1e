package clusters

import (
	"io"
	"os"
	"strings"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/internal/out"
)

// longestParameters limits the size of a file of parameters, in bytes.
const longestParameters = 512 << 10

// parameters reads a file of parameters, or - for stdin, and pairs name=value, which override the file. Values are
// parsed as YAML, so that numbers are numbers. Invalid.
func parameters(stdin io.Reader, file string, pairs []string) (map[string]any, error) {
	all := map[string]any{}
	if file != "" {
		text, err := readFile(stdin, file, longestParameters)
		if err != nil {
			return nil, err
		}
		if err := yaml.Unmarshal(text, &all); err != nil {
			// does not contain secrets from the file
			return nil, croft.Errorf(croft.Invalid, "%s is no mapping of parameters in YAML", file)
		}
	}
	for _, pair := range pairs {
		name, text, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, croft.Errorf(croft.Invalid, "--parameter %.40q is not name=value", pair)
		}
		var value any
		if yaml.Unmarshal([]byte(text), &value) != nil || value == nil {
			value = text
		}
		all[name] = value
	}
	if len(all) == 0 {
		return nil, nil
	}
	return all, nil
}

// readFile reads a file, or - for stdin. Invalid.
func readFile(stdin io.Reader, file string, longest int64) ([]byte, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "%w", err)
		}
		defer f.Close()
		stdin = f
	}
	text, err := io.ReadAll(io.LimitReader(stdin, longest+1))
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "read %s: %w", file, err)
	}
	if int64(len(text)) > longest {
		return nil, croft.Errorf(croft.Invalid, "%s has more than %s", file, out.Bytes(longest))
	}
	return text, nil
}
