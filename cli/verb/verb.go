// Package verb implements the verbs that most nouns have: list, show and remove, the completion of names, and hints for
// names that do not exist.
package verb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"croft"
	"croft/cli/args"
	"croft/internal/delay"
	"croft/internal/out"
)

// Run returns the RunE of a command that calls do with a client, and ends within args.AnswerTimeout.
func Run(do func(context.Context, *args.Client) error) func(*cobra.Command, []string) error {
	return Wait(func(ctx context.Context, c *args.Client) error {
		return Within(ctx, func(ctx context.Context) error { return do(ctx, c) })
	})
}

// Wait does the same as Run for a command that waits for work of a host, as long as that takes. Its requests go through
// Within, Asked and Gone, which limit each of them.
func Wait(do func(context.Context, *args.Client) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, given []string) error {
		return args.With(cmd, func(ctx context.Context, c *args.Client) error {
			c.Args = given
			return do(ctx, c)
		})
	}
}

// Within calls do, which must end within args.AnswerTimeout.
func Within(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, args.AnswerTimeout)
	defer cancel()
	return do(ctx)
}

// Asked returns what a request returns that must end within args.AnswerTimeout.
func Asked[T, In any](ctx context.Context, do func(context.Context, In) (T, error), in In) (out T, err error) {
	err = Within(ctx, func(ctx context.Context) error {
		out, err = do(ctx, in)
		return err
	})
	return out, err
}

// Gone waits until look returns NotFound, at most for patience, with pauses. False: it still finds the object. Another
// error of look ends the wait.
func Gone(ctx context.Context, patience, pause time.Duration, look func(context.Context) error) (bool, error) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		err := Within(ctx, look)
		if errors.Is(err, croft.NotFound) {
			return true, nil
		}
		if err == nil {
			err = delay.For(ctx, pause)
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// Noun is a kind of objects. Fields that a noun's verbs do not use may be nil.
type Noun[T any] struct {
	Name string // such as aggregate
	Use  string // how a usage line names an object; empty: NAME
	All  func(context.Context, *args.Client) ([]T, error)
	Find func(ctx context.Context, c *args.Client, name string) (T, error)
	Word func(T) (name, what string) // the name and the description that are completed
	Head []string                    // of the table of List
	Row  func(T) []out.Cell          // of the table of List
	Rows func(*out.Table, T)         // the table of Show
	Kept func(T) error               // why an object cannot be removed now; nil: nothing
	Data func(T) any                 // what programs read; nil: the object itself
}

// Texts returns cells without colors.
func Texts(texts ...string) []out.Cell {
	cells := make([]out.Cell, len(texts))
	for i, text := range texts {
		cells[i].Text = text
	}
	return cells
}

// data returns what programs read of objects, which is never null.
func (n Noun[T]) data(all []T) any {
	if n.Data == nil {
		return append([]T{}, all...)
	}
	list := make([]any, len(all))
	for i, one := range all {
		list[i] = n.Data(one)
	}
	return list
}

// List returns the command list.
func (n Noun[T]) List(short string) *cobra.Command {
	return &cobra.Command{Use: "list", Short: short, RunE: Run(func(ctx context.Context, c *args.Client) error {
		all, err := n.All(ctx, c)
		if err != nil {
			return err
		}
		return n.Print(c, all)
	})}
}

// Print prints objects as List does.
func (n Noun[T]) Print(c *args.Client, all []T) error {
	return c.Print(n.data(all), func(t *out.Table) {
		t.Head(n.Head...)
		for _, one := range all {
			t.Row(n.Row(one)...)
		}
	})
}

// Show returns the command show.
func (n Noun[T]) Show(short string) *cobra.Command {
	return &cobra.Command{Use: "show " + n.use(), Short: short, ValidArgsFunction: n.Complete(1),
		RunE: Run(func(ctx context.Context, c *args.Client) error { return n.PrintOne(ctx, c, c.Args[0]) })}
}

// PrintOne prints an object as Show does.
func (n Noun[T]) PrintOne(ctx context.Context, c *args.Client, name string) error {
	one, err := n.Find(ctx, c, name)
	if err != nil {
		return n.Near(ctx, c, name, err)
	}
	var data any = one
	if n.Data != nil {
		data = n.Data(one)
	}
	return c.Print(data, func(t *out.Table) { n.Rows(t, one) })
}

// Remove returns the command remove.
func (n Noun[T]) Remove(short string, remove func(ctx context.Context, c *args.Client, name string) error,
) *cobra.Command {
	return &cobra.Command{Use: "remove " + n.use() + "...", Short: short, ValidArgsFunction: n.Complete(-1),
		RunE: Run(func(ctx context.Context, c *args.Client) error {
			return Each(c.Args, n.Removable(ctx, c), func(name string) error {
				err := n.Near(ctx, c, name, remove(ctx, c, name))
				if err == nil {
					c.Say("%s %s is removed", n.Name, name)
				}
				return err
			})
		})}
}

// NameAgain has a person type the name of an object that an action ends for good, in answer to a question; yes is the
// name if the command line has it already. Invalid: it is another name.
func NameAgain(cmd *cobra.Command, action, name, yes, question string) error {
	if yes == "" {
		fmt.Fprint(cmd.ErrOrStderr(), question)
		line, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n') // an empty answer is refused
		yes = strings.TrimSpace(line)
	}
	if yes != name {
		return croft.Errorf(croft.Invalid, "%s %s: %q is not its name, so nothing was done", action, name, yes)
	}
	return nil
}

// Confirm has a person type yes in answer to a question. Invalid: the answer is another one.
func Confirm(cmd *cobra.Command, action, question string) error {
	fmt.Fprintf(cmd.ErrOrStderr(), "%s? Type yes: ", question)
	line, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n') // an empty answer means no
	if strings.TrimSpace(line) != "yes" {
		return croft.Errorf(croft.Invalid, "%s: the answer was not yes, so nothing was done", action)
	}
	return nil
}

// Each calls check with each of several names and then, unless one of them has an error, do with each name, also after
// errors of do. A wrong name among several therefore changes nothing. A name that is repeated counts once.
func Each(names []string, check, do func(name string) error) error {
	names = Once(names)
	var errs []error
	if len(names) > 1 {
		for _, name := range names {
			if err := check(name); err != nil {
				errs = append(errs, Nothing(err))
			}
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, name := range names {
		errs = append(errs, do(name))
	}
	return errors.Join(errs...)
}

// Nothing adds to the error of a check that its command has changed nothing.
func Nothing(err error) error { return fmt.Errorf("nothing was done: %w", err) }

// Once returns words without their repetitions, in their order.
func Once(words []string) []string {
	var once []string
	for _, word := range words {
		if !slices.Contains(once, word) {
			once = append(once, word)
		}
	}
	return once
}

// Known returns a check of Each: an object has the name. NotFound.
func (n Noun[T]) Known(ctx context.Context, c *args.Client) func(name string) error {
	return func(name string) error {
		_, err := n.find(ctx, c, name)
		return n.Near(ctx, c, name, err)
	}
}

// Removable returns a check of Each: an object has the name, and can be removed. NotFound; Conflict.
func (n Noun[T]) Removable(ctx context.Context, c *args.Client) func(name string) error {
	return func(name string) error {
		one, err := n.find(ctx, c, name)
		if err == nil && n.Kept != nil {
			err = n.Kept(one)
		}
		return n.Near(ctx, c, name, err)
	}
}

func (n Noun[T]) find(ctx context.Context, c *args.Client, name string) (found T, err error) {
	err = Within(ctx, func(ctx context.Context) (err error) {
		if n.Find != nil {
			found, err = n.Find(ctx, c, name)
			return err
		}
		all, err := n.All(ctx, c)
		if err != nil {
			return err
		}
		for _, one := range all {
			if word, _ := n.Word(one); word == name {
				found = one
				return nil
			}
		}
		return croft.Errorf(croft.NotFound, "there is no %s %q", n.Name, name)
	})
	return found, err
}

func (n Noun[T]) use() string {
	if n.Use == "" {
		return "NAME"
	}
	return n.Use
}

// Offer offers the names of all objects for completion.
func (n Noun[T]) Offer(ctx context.Context, c *args.Client, offer args.Offer) error {
	all, err := n.All(ctx, c)
	for _, one := range all {
		offer(n.Word(one))
	}
	return err
}

// Complete completes names, up to most arguments; -1: any number.
func (n Noun[T]) Complete(most int) cobra.CompletionFunc { return Complete(most, n.Offer) }

// Complete completes the names that list offers, up to most arguments; -1: any number.
func Complete(most int, list func(context.Context, *args.Client, args.Offer) error) cobra.CompletionFunc {
	return func(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if most >= 0 && len(given) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return args.StoredNames(cmd, given, prefix, list), cobra.ShellCompDirectiveNoFileComp
	}
}

// Near adds the most similar name, which the command does not name as well, to a NotFound error that names none.
func (n Noun[T]) Near(ctx context.Context, c *args.Client, name string, err error) error {
	if n.Word == nil {
		return err
	}
	return args.Near(name, err, func(offer args.Offer) error {
		return Within(ctx, func(ctx context.Context) error { return n.Offer(ctx, c, c.Unnamed(name, offer)) })
	})
}

// Given returns the value of a flag that was given; nil: it was not.
func Given[T any](f *pflag.FlagSet, name string, value *T) *T {
	if !f.Changed(name) {
		return nil
	}
	return value
}

// YesNo returns yes or no.
func YesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// Group returns a command that only has subcommands.
func Group(use, short, long, example string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Example: example}
	cmd.AddCommand(subs...)
	return cmd
}

// CloudGroup returns a command that only has subcommands, all of which connect to the cloud.
func CloudGroup(use, short, long, example string, subs ...*cobra.Command) *cobra.Command {
	cmd := Group(use, short, long, example, subs...)
	args.AddCloudFlags(cmd.PersistentFlags())
	return cmd
}
