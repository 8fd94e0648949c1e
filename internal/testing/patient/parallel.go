package patient

import (
	"flag"
	"strconv"
)

// SideBySide lets n tests that call t.Parallel run at once, where the command line does not set -parallel. The default
// of go test, the number of processors, is for tests that compute; most of ours wait. TestMain calls SideBySide.
func SideBySide(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err) // the testing package declares this flag, and it takes numbers
	}
}
