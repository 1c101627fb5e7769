// Gitea's command, as its own main package starts it.
package main

import (
	"os"
	"time"

	"code.gitea.io/gitea/cmd"
	"code.gitea.io/gitea/modules/log"
	"code.gitea.io/gitea/modules/setting"
)

const version = "1.26.0"

func main() {
	setting.AppVer = version
	setting.AppStartTime = time.Now().UTC()
	err := cmd.RunMainApp(cmd.NewMainApp(cmd.AppVersion{Version: version}), os.Args...)
	log.GetManager().Close()
	if err != nil {
		os.Exit(1)
	}
}
