package cluster

import "fmt"

// Keys are the public SSH keys among the parameters.
func (b Build) Keys() (keys []string) {
	listed, _ := b.Parameters[ParamKeys].([]any)
	for _, key := range listed {
		keys = append(keys, fmt.Sprint(key))
	}
	return keys
}
