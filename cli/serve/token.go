package serve

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"croft/cli/args"
	"croft/cli/out"
)

// tokenFrom reads the token given to --join: - is a line of the input, @FILE a file.
func tokenFrom(given string, stdin io.Reader, words io.Writer) (string, error) {
	if given != "-" {
		return args.TokenInFile("--join", given, "on the input with --join -")
	}
	if out.IsTerminal(stdin) {
		fmt.Fprint(words, "the token: ")
	}
	line, err := bufio.NewReader(io.LimitReader(stdin, 1<<16)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the token: %w", err)
	}
	return line, nil
}
