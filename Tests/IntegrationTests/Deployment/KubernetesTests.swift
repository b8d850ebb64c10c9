import APITestSupport
import Foundation
import PostgreSQLTestSupport
import ProcessTestSupport
import Testing

/// The manifests in `docker/kubernetes`, one folder for each store.
@Suite struct KubernetesTests {
    private static let folder = "\(DeploymentFile.folder)/kubernetes"
    private static let common = ["networkpolicy.yaml", "service.yaml"]
    private static let manifests = [
        "sqlite": common + ["statefulset.yaml"],
        "postgresql": common + ["deployment.yaml", "poddisruptionbudget.yaml"],
    ]
    private static let others = [
        "backup/backup.yaml", "backup/restore-drill.yaml", "backup/postgresql-backup.yaml",
        "backup/postgresql-restore-drill.yaml", "edge/daemonset.yaml",
    ]
    /// The file of the pod.
    private static let workloads = ["sqlite/statefulset.yaml", "postgresql/deployment.yaml"]

    @Test(arguments: manifests)
    func `Each folder has its manifests, which the kustomization and the article list`(
        store: String, files: [String]
    ) throws {
        let present = try FileManager.default.contentsOfDirectory(atPath: "\(Self.folder)/\(store)")
        #expect(Set(present) == Set(files + ["kustomization.yaml"]))
        let article = try String(contentsOfFile: "\(ExampleSection.catalog)/Kubernetes.md", encoding: .utf8)
        let kustomization = try DeploymentFile.text("kubernetes/\(store)/kustomization.yaml")
        for file in files {
            #expect(article.contains("`\(file)`"))
            #expect(kustomization.contains("  - \(file)\n"))
        }
        let version = try Command("--version").output.trimmingCharacters(in: .whitespacesAndNewlines)
        #expect(kustomization.contains("newTag: \(version)\n"))
        #expect(article.contains("apply --kustomize docker/kubernetes/\(store)"))
    }

    @Test(
        .enabled(if: PythonPackages.areInstalled, PythonPackages.missing),
        arguments: ["1.27", "1.33"])
    func `Manifests have no member that Kubernetes does not know`(version: String) throws {
        let program = "\(PythonPackages.programs)/kubernetes-validate"
        var files = Self.manifests.flatMap { store, files in files.map { "\(Self.folder)/\(store)/\($0)" } }
        files += Self.others.map { "\(Self.folder)/\($0)" }
        // Its sidecar is a container that 1.27 does not know.
        if version != "1.27" { files.append("\(Self.folder)/edge/deployment.yaml") }
        try runAt(program, ["--strict", "-k", version] + files.sorted())
    }

    @Test(.enabled(if: Executable.find("kubectl") != nil, "kubectl is not installed"), arguments: manifests.keys)
    func `kubectl renders the folder with the image and the namespace of the kustomization`(store: String) throws {
        guard let kubectl = Executable.find("kubectl") else { return }
        // kubectl makes its cache in the home directory.
        let home = try TemporaryDirectory()
        let text = try runAt(
            kubectl, ["kustomize", "\(Self.folder)/\(store)"], environment: ["HOME": home.path])
        let images = text.matches(of: #/ image: (\S+)/#).map { $0.output.1 }
        #expect(images.count == 2 && Set(images).count == 1, "\(images)")
        #expect(images.first?.hasPrefix("registry.example.com/holdfast:") == true)
        #expect(text.matches(of: #/\n  namespace: holdfast\n/#).count == Self.manifests[store]?.count)
    }

    @Test(arguments: workloads)
    func `Paths, ports and files of the manifests are those of the program and its image`(file: String) throws {
        let text = try DeploymentFile.text("kubernetes/\(file)")
        let directory = try TemporaryDirectory()
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        let probes = text.matches(of: #/path: (\S+)\n\s+port: http/#).map { String($0.output.1) }
        #expect(probes.count == 3)
        for path in probes { #expect(try server.request("GET", path).status == 200, "\(path)") }
        server.stop()
        let image = try DeploymentFile.text("Dockerfile")
        for shared in ["0.0.0.0:8080", "10001"] { #expect(text.contains(shared) && image.contains(shared)) }
        if file.hasPrefix("sqlite") {
            #expect(text.contains("/var/lib/holdfast\n") && image.contains("VOLUME /var/lib/holdfast\n"))
            // The file system is read-only.
            #expect(image.contains("SQLITE_TMPDIR=/var/lib/holdfast\n"))
        }
        #expect(text.contains("containerPort: 8080"))
        let service = file.replacing(#/\w+.yaml/#, with: "service.yaml")
        #expect(try DeploymentFile.text("kubernetes/\(service)").contains("port: 8080\n"))
    }

    @Test func `Addresses, files and volumes of the compose file for PostgreSQL exist`() throws {
        let text = try DeploymentFile.text("compose.postgresql.yaml")
        // What the comment at its beginning tells to make.
        let made: Set = ["tokens", "pgpass", "postgres-password", "tls"]
        let mounted = text.matches(of: #/- \./([a-z.-]+):/#).map { String($0.output.1) }
        #expect(mounted.count == 6)
        for file in mounted {
            #expect(
                made.contains(file)
                    ? text.contains("docker/\(file)")
                    : FileManager.default.fileExists(atPath: "\(DeploymentFile.folder)/\(file)"), "\(file)")
        }
        let address = try #require(text.firstMatch(of: #/TRUSTED_PROXIES: (\S+)/#)?.output.1)
        #expect(text.contains("ipv4_address: \(address)\n"))
        #expect(try DeploymentFile.text("nginx.conf").contains("server holdfast:8080;"))
        #expect(try DeploymentFile.text("Dockerfile").contains("/run/secrets/holdfast-tokens"))
        for volume in ["one", "two"] { #expect(text.contains("- \(volume):/var/lib/postgresql/data")) }
    }

    @Test(arguments: workloads)
    func `A pod has more time to stop than the server needs`(file: String) throws {
        let text = try DeploymentFile.text("kubernetes/\(file)")
        let grace = try #require(text.firstMatch(of: #/terminationGracePeriodSeconds: (\d+)/#)?.output.1)
        let delay = try #require(text.firstMatch(of: #/SHUTDOWN_DELAY\n\s+value: (\d+)s/#)?.output.1)
        // The default of --shutdown-timeout is 10 s.
        #expect(try #require(Int(grace)) >= (try #require(Int(delay))) + 10 + 10)
    }

    @Test func `The article makes every secret that the pods use, with its keys`() throws {
        let article = try String(contentsOfFile: "\(ExampleSection.catalog)/Kubernetes.md", encoding: .utf8)
        for file in Self.workloads {
            let text = try DeploymentFile.text("kubernetes/\(file)")
            let secrets = Set(text.matches(of: #/secretName: (\S+)/#).map { String($0.output.1) })
            #expect(!secrets.isEmpty)
            for secret in secrets { #expect(article.contains("create secret generic \(secret) "), "\(secret)") }
        }
        // The path in the connection string is that of the mounted certificates.
        let text = try DeploymentFile.text("kubernetes/postgresql/deployment.yaml")
        #expect(
            text.contains("mountPath: /database\n") && text.contains("path: ca.crt\n") && text.contains("key: url\n"))
        #expect(article.contains("sslrootcert=/database/ca.crt"))
        #expect(article.contains("--from-file=ca.crt") && article.contains("--from-file=url"))
    }

    @Test func `The commands of the backup and of the drill restore what a server has`() throws {
        let directory = try TemporaryDirectory()
        let database = directory.file("holdfast.db")
        let server = try ServerProcess(database: database)
        #expect(try server.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        for folder in ["backups", "drill"] {
            try FileManager.default.createDirectory(atPath: directory.file(folder), withIntermediateDirectories: false)
        }
        let programs = URL(fileURLWithPath: Executable.holdfast).deletingLastPathComponent().path
        let path = ProcessInfo.processInfo.environment["PATH"] ?? ""
        let environment = [
            "PATH": "\(programs):\(path)", "HOLDFAST_DATABASE": database,
            "BACKUP_DIRECTORY": directory.file("backups"), "DRILL_DIRECTORY": directory.file("drill"),
        ]
        let backup = try DeploymentFile.text("kubernetes/backup/backup.yaml")
        #expect(backup.contains(#"command: ["/usr/lib/holdfast/backup"]"#))
        #expect(try DeploymentFile.text("Dockerfile").contains("COPY docker/backup /usr/lib/holdfast/backup\n"))
        #expect(try DeploymentFile.text("Dockerfile.dockerignore").contains("\n!docker/backup\n"))
        try runAt("\(DeploymentFile.folder)/backup", [], environment: environment)
        let drill = try DeploymentFile.text("kubernetes/backup/restore-drill.yaml")
        let block = try #require(Self.scripts(in: drill).first)
        let output = try runAt("/bin/sh", ["-euc", block], environment: environment)
        #expect(output.contains("1 profiles were read: the backup can be restored"), "\(output)")
        for name in ["HOLDFAST_DATABASE", "BACKUP_DIRECTORY"] { #expect(backup.contains("name: \(name)\n")) }
        for name in ["DRILL_DIRECTORY", "BACKUP_DIRECTORY"] { #expect(drill.contains("name: \(name)\n")) }
        // The server has used the database all the time.
        #expect(try server.request("GET", "/v1/profiles/ada").status == 200)
    }

    /// The scripts of containers, which stand before their environments.
    private static func scripts(in manifest: String) -> [String] {
        manifest.components(separatedBy: "- |\n").dropFirst().compactMap {
            $0.split(separator: #/\n +env:/#, maxSplits: 1).first.map(String.init)
        }
    }

    @Test func `The commands of the backup and of the drill of PostgreSQL restore what its servers have`() throws {
        let database = try TestDatabase(.postgreSQL)
        let server = try ServerProcess(database: database.url)
        #expect(try server.request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        let directory = try TemporaryDirectory()
        for folder in ["", "backups", "drill"] {
            let path = directory.file(folder)
            try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
            // PostgreSQL refuses to run as root.
            try FileManager.default.setAttributes([.posixPermissions: 0o777], ofItemAtPath: path)
        }
        let path = ProcessInfo.processInfo.environment["PATH"] ?? ""
        let holdfast = URL(fileURLWithPath: Executable.holdfast).deletingLastPathComponent().path
        let releases = "/usr/lib/postgresql"
        let release = try FileManager.default.contentsOfDirectory(atPath: releases).max { Int($0) ?? 0 < Int($1) ?? 0 }
        let environment = [
            "PATH": "\(releases)/\(release ?? "")/bin:\(holdfast):\(path)", "HOLDFAST_DATABASE": database.url,
            "BACKUP_DIRECTORY": directory.file("backups"), "DRILL_DIRECTORY": directory.file("drill"),
            "BACKUP_KEEP": "2", "LC_ALL": "C.UTF-8",
        ]
        func start(_ script: String, asPostgreSQL: Bool) throws -> ChildProcess {
            let command = ["/bin/sh", "-euc", script]
            let user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
            let isRoot = getuid() == 0 && asPostgreSQL
            return try ChildProcess("/usr/bin/env", (isRoot ? user : []) + command, environment: environment)
        }
        let backup = try DeploymentFile.text("kubernetes/backup/postgresql-backup.yaml")
        let old = ["holdfast-20250101T000000Z.dump", "holdfast-20250102T000000Z.dump"]
        for name in old { _ = try directory.write("", to: "backups/\(name)") }
        let copying = try start(try #require(Self.scripts(in: backup).first), asPostgreSQL: true)
        #expect(copying.wait() == .exit(0), "\(copying.errors.text)")
        let kept = try FileManager.default.contentsOfDirectory(atPath: directory.file("backups")).sorted()
        #expect(kept.count == 2 && kept.first == old[1] && kept.last?.hasSuffix("Z.dump") == true, "\(kept)")
        // What is stored later is not in the copy.
        #expect(try server.request("POST", "/ups/save", profile("bob", ["11": "1"])).status == 200)

        let drill = try DeploymentFile.text("kubernetes/backup/postgresql-restore-drill.yaml")
        let scripts = Self.scripts(in: drill)
        try #require(scripts.count == 2)
        let restoring = try start(scripts[0], asPostgreSQL: true)
        let reading = try start(scripts[1], asPostgreSQL: false)
        #expect(reading.wait() == .exit(0), "\(reading.errors.text) \(restoring.errors.text)")
        #expect(restoring.wait() == .exit(0), "\(restoring.errors.text)")
        #expect(reading.output.text.contains("1 profiles were read: the backup can be restored"))
        for name in ["HOLDFAST_DATABASE", "BACKUP_DIRECTORY", "BACKUP_KEEP"] {
            #expect(backup.contains("name: \(name)\n"))
        }
        #expect(backup.contains("mountPath: /database\n") && backup.contains("secretName: holdfast-database\n"))

        // A copy that is damaged fails both.
        for name in ["ended", "restored", "read", "data", "profiles"] {
            try FileManager.default.removeItem(atPath: directory.file("drill/\(name)"))
        }
        _ = try directory.write("no copy", to: "backups/holdfast-29990101T000000Z.dump", mode: 0o644)
        let failing = try start(scripts[0], asPostgreSQL: true)
        #expect(try start(scripts[1], asPostgreSQL: false).wait() == .exit(1))
        #expect(failing.wait() != .exit(0))
        server.stop()
    }

    @Test func `Everything selects the pods by the label that they have`() throws {
        for (store, files) in Self.manifests {
            for file in files where file != "service.yaml" {
                let text = try DeploymentFile.text("kubernetes/\(store)/\(file)")
                #expect(
                    text.contains(#/matchLabels:\n\s+app\.kubernetes\.io\/name: holdfast\n/#), "\(store)/\(file)")
            }
        }
    }
}
