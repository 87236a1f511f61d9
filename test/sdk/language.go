package sdk

import (
	"os"
	"os/exec"
	"path/filepath"
)

// Language is one whose SDK the scenarios hold to account.
type Language struct {
	Name string
	// Line is the command line of its agent. Missing says what there is none for; empty: it can be started.
	Line    []string
	Missing string
}

// Languages are all of them. root is the folder of the repository, goAgent the program that the Go agent was built to.
func Languages(root, goAgent string) []Language {
	python := first(os.Getenv("MILLRACE_PYTHON"), filepath.Join(root, ".cache", "py", "bin", "python"), filepath.Join(root, "sdk", "python", ".venv", "bin", "python"))
	pythonAgent := filepath.Join(root, "sdk", "python", "tests", "agent.py")
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
