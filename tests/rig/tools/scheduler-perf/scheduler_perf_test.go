// Package schedulerperf runs Kubernetes' own benchmark of the scheduler beside an extender.
package schedulerperf

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	_ "k8s.io/component-base/logs/json/register"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/ktesting"
)

var (
	cases = flag.String("cases", "performance-config.yaml", "file with the test cases to run")
	ready = flag.String("ready", "", "URL that answers 200 once the extender is ready; empty runs none")
)

const readyWithin = 2 * time.Minute

func TestMain(m *testing.M) {
	if err := perf.InitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m.Run()
}

// BenchmarkPerfScheduling runs the cases. The words after all flags are the command that starts the extender; it finds
// the cluster by the environment variable KUBECONFIG, and is ended before the cluster is.
func BenchmarkPerfScheduling(b *testing.B) {
	perf.RunBenchmarkPerfScheduling(b, *cases, "phasewise", nil, perf.WithPrepareFn(startExtender))
}

func startExtender(tCtx ktesting.TContext) error {
	if *ready == "" {
		return nil
	}
	folder := tCtx.TB().TempDir()
	kubeconfig := filepath.Join(folder, "kubeconfig")
	if err := writeKubeconfig(tCtx, kubeconfig); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(folder, "extender.log"))
	if err != nil {
		return err
	}
	words := flag.Args()
	extender := exec.Command(words[0], words[1:]...)
	extender.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	extender.Stdout, extender.Stderr = log, log
	if err := extender.Start(); err != nil {
		return err
	}
	tCtx.Cleanup(func() {
		_ = extender.Process.Signal(syscall.SIGTERM)
		_ = extender.Wait()
		_ = log.Close()
	})
	if err := waitUntilReady(); err != nil {
		said, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%w; it said:\n%s", err, said)
	}
	return nil
}

func writeKubeconfig(tCtx ktesting.TContext, file string) error {
	rest := tCtx.RESTConfig()
	config := clientcmdapi.NewConfig()
	config.Clusters["it"] = &clientcmdapi.Cluster{
		Server:                   rest.Host,
		CertificateAuthorityData: rest.CAData,
		CertificateAuthority:     rest.CAFile,
		TLSServerName:            rest.ServerName,
	}
	config.AuthInfos["me"] = &clientcmdapi.AuthInfo{Token: rest.BearerToken}
	config.Contexts["it"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "me"}
	config.CurrentContext = "it"
	return clientcmd.WriteToFile(*config, file)
}

func waitUntilReady() error {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for until := time.Now().Add(readyWithin); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		if answer, err := client.Get(*ready); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
	}
	return fmt.Errorf("the extender did not answer %s within %s", *ready, readyWithin)
}
