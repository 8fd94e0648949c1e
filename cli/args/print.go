package args

import (
	"fmt"

	"croft/internal/out"
)

// WantsData reports whether the output is for programs.
func (c *Client) WantsData() bool {
	return out.IsData(c.Settings.Output)
}

// PrintData prints a result for programs.
func (c *Client) PrintData(data any) error {
	return out.PrintData(c.Cmd.OutOrStdout(), c.Settings.Output, data)
}

// Print prints a result: data for programs, and for people a table that fill fills.
func (c *Client) Print(data any, fill func(*out.Table)) error {
	return out.Print(c.Cmd.OutOrStdout(), c.Settings.Output, data, fill)
}

// PrintText prints a result: data for programs, and for people a text.
func (c *Client) PrintText(data any, text string) error {
	if c.WantsData() {
		return c.PrintData(data)
	}
	_, err := fmt.Fprint(c.Cmd.OutOrStdout(), text)
	return err
}

// Say prints a message for people.
func (c *Client) Say(format string, words ...any) {
	fmt.Fprintf(c.Cmd.ErrOrStderr(), format+"\n", words...)
}

// Report reports an action: it prints the changed object for programs, and for people a message.
func (c *Client) Report(data any, format string, words ...any) error {
	if c.WantsData() {
		return c.PrintData(data)
	}
	c.Say(format, words...)
	return nil
}
