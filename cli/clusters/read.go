package clusters

import (
	"io"
	"strings"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/cli/args"
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
			return nil, croft.Errorf(croft.Invalid, "%s is not a YAML mapping of parameters", file)
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
	text, err := args.ReadFile(stdin, file, file, longest)
	if err == nil && int64(len(text)) > longest {
		err = croft.Errorf(croft.Invalid, "%s has more than %s", file, out.Bytes(longest))
	}
	return text, err
}
