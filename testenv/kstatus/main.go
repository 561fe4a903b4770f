// Command kstatus prints the status that Flux's kstatus computes for each object of a JSON array on
// standard input, as one JSON array.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type result struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kstatus:", err)
		os.Exit(1)
	}
}

func run() error {
	var raw []json.RawMessage
	if err := json.NewDecoder(os.Stdin).Decode(&raw); err != nil {
		return err
	}
	results := make([]result, 0, len(raw))
	for _, text := range raw {
		object := &unstructured.Unstructured{}
		// Its own decoder: numbers must be int64, as they are in a client of Kubernetes.
		if err := object.UnmarshalJSON(text); err != nil {
			return err
		}
		computed, err := status.Compute(object)
		if err != nil {
			return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
		results = append(results, result{computed.Status.String(), computed.Message})
	}
	return json.NewEncoder(os.Stdout).Encode(results)
}
