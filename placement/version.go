package placement

import (
	"fmt"
	"strconv"
	"strings"

	"croft/placement/internal/schema"
)

// version is a microversion: the n of 1.n.
type version int

// Supported microversions.
const (
	minVersion version = 0
	maxVersion version = 39
)

func (v version) String() string { return fmt.Sprintf("1.%d", int(v)) }

// versionHeader is the header that names the service and the version, in requests and answers.
const versionHeader = "Openstack-Api-Version"

// parseVersion reads the headers of a request. Without them it returns the oldest version.
func parseVersion(headers []string) (version, error) {
	text := wantedVersion(headers)
	switch text {
	case "":
		return minVersion, nil
	case "latest":
		return maxVersion, nil
	}
	major, minor, dotted := strings.Cut(text, ".")
	if !dotted {
		major, minor = text, "0"
	}
	var n [2]int
	for i, part := range []string{major, minor} {
		var err error
		if n[i], err = strconv.Atoi(strings.TrimSpace(part)); err != nil {
			return 0,
				badRequest("Invalid microversion: invalid version string: %s; invalid literal for int() with base "+
					"10: '%s'",
					text, part)
		}
	}
	if !dotted {
		return 0, badRequest("Invalid microversion: invalid version string: %s; "+
			"Version.__new__() missing 1 required positional argument: 'minor'", text)
	}
	if v := version(n[1]); n[0] == 1 && v >= minVersion && v <= maxVersion {
		return v, nil
	}
	return 0, &apiError{status: 406, detail: "Invalid microversion: Unacceptable version header: " + text}
}

// wantedVersion returns the last value that names this service.
func wantedVersion(headers []string) string {
	values := strings.Split(strings.Join(headers, ","), ",")
	for i := len(values) - 1; i >= 0; i-- {
		fields := strings.Fields(values[i])
		if len(fields) >= 2 && strings.EqualFold(fields[0], "placement") {
			return strings.Join(fields[1:], " ")
		}
	}
	return ""
}

// versioned is a schema and the first version that uses it.
type versioned struct {
	since  version
	schema *schema.Schema
}

// pick returns the schema of a version from a list, newest first.
func pick(v version, list []versioned) *schema.Schema {
	for _, e := range list {
		if v >= e.since {
			return e.schema
		}
	}
	return list[len(list)-1].schema
}
