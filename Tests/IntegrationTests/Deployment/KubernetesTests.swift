import APITestSupport
import Foundation
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
    private static let others = ["backup/backup.yaml", "backup/restore-drill.yaml", "edge/daemonset.yaml"]
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
        let block = try #require(
            drill.components(separatedBy: "- |\n").last?.components(separatedBy: "          env:").first)
        let output = try runAt("/bin/sh", ["-euc", block], environment: environment)
        #expect(output.contains("1 profiles were read: the backup can be restored"), "\(output)")
        for name in ["HOLDFAST_DATABASE", "BACKUP_DIRECTORY"] { #expect(backup.contains("name: \(name)\n")) }
        for name in ["DRILL_DIRECTORY", "BACKUP_DIRECTORY"] { #expect(drill.contains("name: \(name)\n")) }
        // The server has used the database all the time.
        #expect(try server.request("GET", "/v1/profiles/ada").status == 200)
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
