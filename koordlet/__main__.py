from koordlet.cli.main import main

raise SystemExit(main())
