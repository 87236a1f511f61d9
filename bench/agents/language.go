package agents

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// BuildGo builds the agent of the SDK of Go from the repository at root, and returns the path of the program, which is below dir.
func BuildGo(ctx context.Context, root, dir string) (string, error) {
	path := filepath.Join(dir, "goagent")
	build := exec.CommandContext(ctx, "go", "build", "-o", path, "./test/sdk/goagent")
	build.Dir = root
	if b, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the agent of Go: %w: %s", err, b)
	}
	return path, nil
}

// Language is one that has an SDK and an agent.
type Language struct {
	Name string
	// Line is the command line of its agent. Missing says what there is none for; empty: it can be started.
	Line    []string
	Missing string
}

// Languages are all of them. root is the folder of the repository, goAgent the program that the Go agent was built to.
func Languages(root, goAgent string) []Language {
	python := first(os.Getenv("MILLRACE_PYTHON"), filepath.Join(root, ".cache", "py", "bin", "python"), filepath.Join(root, "sdk", "python", ".venv", "bin", "python"))
	pythonAgent := filepath.Join(root, "sdk", "python", "tests", "run_agent.py")
	nodeAgent := first(os.Getenv("MILLRACE_NODE_AGENT"), filepath.Join(root, "sdk", "typescript", "test-dist", "agent.mjs"))
	node, _ := exec.LookPath("node")
	return []Language{
		{Name: "go", Line: []string{goAgent}},
		language("python", python, pythonAgent),
		language("python-async", python, pythonAgent, "--async"),
		language("typescript", node, nodeAgent),
	}
}

// language is one whose agent is a file that an interpreter runs.
func language(name, interpreter, file string, flags ...string) Language {
	l := Language{Name: name, Line: append([]string{interpreter, file}, flags...)}
	if interpreter == "" {
		l.Missing = "its interpreter is not set up: scripts/sdk-setup.sh does that"
	} else if _, err := os.Stat(file); err != nil {
		l.Missing = "its agent is not there: " + err.Error()
	}
	return l
}

// first is the first path at which there is a file.
func first(paths ...string) string {
	for _, p := range paths {
		if _, err := os.Stat(p); p != "" && err == nil {
			return p
		}
	}
	return ""
}
