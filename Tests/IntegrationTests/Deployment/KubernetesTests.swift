import APITestSupport
import Foundation
import Testing

/// The manifests in `docker/kubernetes`, and the compose file.
@Suite struct KubernetesTests {
    private static let files = ["statefulset.yaml", "service.yaml", "networkpolicy.yaml"]

    @Test func `There are no other manifests`() throws {
        let present = try FileManager.default.contentsOfDirectory(atPath: "\(DeploymentFile.folder)/kubernetes")
        #expect(Set(present) == Set(Self.files))
        let article = try String(contentsOfFile: "\(ExampleSection.catalog)/Kubernetes.md", encoding: .utf8)
        for file in Self.files { #expect(article.contains("`\(file)`")) }
    }

    @Test(
        .enabled(if: PythonEnvironment.kubernetes.canBeMade, "kubernetes-validate cannot be installed here"),
        arguments: files)
    func `Manifests have no member that Kubernetes does not know`(file: String) throws {
        let program = URL(fileURLWithPath: try PythonEnvironment.kubernetes.interpreter.get())
            .deletingLastPathComponent().appendingPathComponent("kubernetes-validate").path
        for version in ["1.27", "1.33"] {
            try runAt(program, ["--strict", "-k", version, "\(DeploymentFile.folder)/kubernetes/\(file)"])
        }
    }

    @Test func `Paths, ports and files of the manifests are those of the program and its image`() throws {
        let text = try DeploymentFile.text("kubernetes/statefulset.yaml")
        let directory = try TemporaryDirectory()
        let server = try ServerProcess(database: directory.file("holdfast.db"))
        let probes = text.matches(of: #/path: (\S+)\n\s+port: http/#).map { String($0.output.1) }
        #expect(probes.count == 3)
        for path in probes { #expect(try server.request("GET", path).status == 200, "\(path)") }
        server.stop()
        let image = try DeploymentFile.text("Dockerfile")
        for shared in ["/var/lib/holdfast", "0.0.0.0:8080", "10001"] {
            #expect(text.contains(shared) && image.contains(shared), "\(shared)")
        }
        #expect(text.contains("containerPort: 8080"))
        #expect(try DeploymentFile.text("kubernetes/service.yaml").contains("port: 8080\n"))
    }

    @Test func `A pod has more time to stop than the server needs`() throws {
        let text = try DeploymentFile.text("kubernetes/statefulset.yaml")
        let grace = try #require(text.firstMatch(of: #/terminationGracePeriodSeconds: (\d+)/#)?.output.1)
        let delay = try #require(text.firstMatch(of: #/SHUTDOWN_DELAY\n\s+value: (\d+)s/#)?.output.1)
        // The default of --shutdown-timeout is 10 s.
        #expect(try #require(Int(grace)) >= (try #require(Int(delay))) + 10 + 10)
    }
}
