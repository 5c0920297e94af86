// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"pathprof/calibrate"
	"pathprof/perfevent"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal finishes the work in good order; a second one kills.
	context.AfterFunc(ctx, stop)
	// A closed pipe is then an error of the write. Not ignored: an ignored
	// signal would stay ignored in the programs record starts.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(run(ctx, os.Stdout, os.Stderr, os.Args[1:]))
}

// run executes one command line and returns the exit status. ctx ends with an
// interrupt.
func run(ctx context.Context, stdout, stderr io.Writer, args []string) int {
	return newEnv(stdout, stderr).run(ctx, args)
}

// env is what the commands share: where they print, and the doors to the
// machine, which tests replace.
type env struct {
	stdout, stderr io.Writer
	getenv         func(string) string
	lookPath       func(string) (string, error)
	self           string // how this program is called from a shell
	probe          func() []perfevent.Feature
	checkRecord    func() error
	// record captures; record and demo use it.
	record func(context.Context, recordOptions) (summary, error)
	// calibrate measures this machine.
	calibrate func(context.Context, calibration) (calibrate.Result, error)
}

func newEnv(stdout, stderr io.Writer) *env {
	return &env{
		stdout: stdout, stderr: stderr, getenv: os.Getenv, lookPath: exec.LookPath, self: callName(),
		probe: probe, checkRecord: perfevent.CheckRecord, record: record,
		calibrate: runCalibration,
	}
}

func (e *env) run(ctx context.Context, args []string) int {
	root := newRootCommand(e)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var usage *usageError
	switch {
	case err == nil, errors.Is(err, syscall.EPIPE):
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(e.stderr, "pathprof: %v\n%s --help says more\n", usage.err, usage.command)
		return 2
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(e.stderr, "pathprof: interrupted")
		return 1
	}
	fmt.Fprintf(e.stderr, "pathprof: %s\n", oneLine(err))
	return 1
}

// usageTemplate is shorter than cobra's.
const usageTemplate = `usage: {{if .HasAvailableSubCommands}}{{.CommandPath}} COMMAND [FLAGS]

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}

{{.CommandPath}} COMMAND --help explains a command.
{{else}}{{.UseLine}}
{{end}}{{if .HasExample}}
Examples:
{{.Example}}
{{end}}{{if and .HasAvailableLocalFlags .HasParent}}
Flags:
{{.LocalFlags.FlagUsagesWrapped 100 | trimTrailingWhitespaces}}
{{end}}`

func newRootCommand(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:           "pathprof",
		Short:         "Tell why a Python program was slow: what ran, what it waited for, and on whom",
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs, // else an unknown command is no usage error
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef(cmd, "no command given")
			}
			hint := ""
			if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
				hint = fmt.Sprintf("; did you mean %s?", s[0])
			}
			return usagef(cmd, "unknown command %q%s", args[0], hint)
		},
	}
	root.SuggestionsMinimumDistance = 2
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetVersionTemplate("pathprof {{.Version}}\n")
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usagef(cmd, "%w", err) })
	root.SetUsageTemplate(usageTemplate)
	root.SetHelpCommand(newHelpCommand())
	root.AddCommand(newRecordCommand(e), newReportCommand(e), newPprofCommand(e),
		newDiffCommand(e), newDumpCommand(e), newCalibrateCommand(e), newCheckCommand(e), newDemoCommand(e))
	return root
}

// newHelpCommand is cobra's, but for the exit status where there is no such
// command.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Explain a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usagef(cmd.Root(), "unknown command %q", args[0])
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// usageError is a mistake in the command line: exit status 2.
type usageError struct {
	command string // whose help says more
	err     error
}

func (u *usageError) Error() string { return u.err.Error() }
func (u *usageError) Unwrap() error { return u.err }

// usagef makes a [usageError] of the command.
func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{command: cmd.CommandPath(), err: fmt.Errorf(format, args...)}
}

// noArgs and oneRecording check the arguments of a command.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef(cmd, "unexpected argument %q", args[0])
	}
	return nil
}

func oneRecording(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return usagef(cmd, "no recording given: a folder NAME.pathprof that record has written")
	case 1:
		return nil
	}
	return usagef(cmd, "unexpected argument %q: one recording at a time", args[1])
}

// callName is how to call this program again: under go run its file is gone
// afterwards.
func callName() string {
	path, err := os.Executable()
	if err == nil && strings.Contains(path, "/go-build") {
		return "go run ./cmd/pathprof"
	}
	return "pathprof"
}

// version is the module's version and the revision it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" {
		v = "(devel)"
	}
	return v + " " + info.GoVersion
}
