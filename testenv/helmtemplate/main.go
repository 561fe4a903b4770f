// Command helmtemplate renders a chart like `helm template`, with Helm's engine, for the tests of
// the chart that `kubewright helm` generates.
//
//	helmtemplate CHART RELEASE NAMESPACE [VALUES]
package main

import (
	"fmt"
	"os"
	"sort"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "helmtemplate:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("usage: helmtemplate CHART RELEASE NAMESPACE [VALUES]")
	}
	chart, err := loader.Load(args[0])
	if err != nil {
		return err
	}
	values := chartutil.Values{}
	if len(args) > 3 {
		if values, err = chartutil.ReadValuesFile(args[3]); err != nil {
			return err
		}
	}
	release := chartutil.ReleaseOptions{
		Name: args[1], Namespace: args[2], Revision: 1, IsInstall: true,
	}
	renderValues, err := chartutil.ToRenderValues(
		chart, values, release, chartutil.DefaultCapabilities,
	)
	if err != nil {
		return err
	}
	rendered, err := engine.Render(chart, renderValues)
	if err != nil {
		return err
	}
	for _, crd := range chart.CRDObjects() {
		fmt.Printf("---\n%s\n", crd.File.Data)
	}
	names := make([]string, 0, len(rendered))
	for name := range rendered {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Printf("---\n# Source: %s\n%s\n", name, rendered[name])
	}
	return nil
}
