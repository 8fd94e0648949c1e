package args

import (
	"strconv"
	"strings"

	"croft"
)

// ParseVolumeSize parses a size in GiB, such as 20, 20G, 20gib or 1T. Invalid.
func ParseVolumeSize(text string) (int64, error) {
	number, factor := strings.TrimSuffix(strings.ToUpper(text), "IB"), int64(1)
	if short, is := strings.CutSuffix(number, "T"); is {
		number, factor = short, 1024
	} else {
		number = strings.TrimSuffix(number, "G")
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > croft.MaxVolumeGB {
		return 0, croft.Errorf(croft.Invalid, "%q is not a size of a volume: write whole GiB, such as 20G, up to %dG", text,
			croft.MaxVolumeGB)
	}
	return n * factor, croft.CheckVolumeSize(n * factor)
}
