import Foundation
import HoldfastClient

/// A process that uses the library and is killed by tests or by its own mistake: `client-process ENDPOINT DIRECTORY fill|send|track|compact|full|defaults|shared`.
let arguments = CommandLine.arguments
guard arguments.count == 4, let endpoint = URL(string: arguments[1]) else {
    fatalError("client-process ENDPOINT DIRECTORY fill|send|track|compact|full|defaults|shared")
}
var configuration = HoldfastConfiguration(
    endpoint: endpoint, directory: URL(fileURLWithPath: arguments[2], isDirectory: true))
configuration.batchSize = 10

/// Writes a line without buffering, so that a kill does not lose it.
@Sendable func say(_ line: String) {
    FileHandle.standardOutput.write(Data((line + "\n").utf8))
}

switch arguments[3] {
case "fill":
    // Nothing is sent during the test.
    configuration.flushInterval = .seconds(3_600)
    configuration.batchSize = 1_000
    let client = try HoldfastClient(configuration: configuration)
    let profiles = UserProfileService(client: client, mode: .trackingOnly)
    for number in 0..<500 { client.track(goalID: "purchase", value: Double(number), userID: "user\(number % 100)") }
    for number in 0..<100 {
        profiles.save(userProfile: UserProfile(userID: "user\(number)", experimentBucketMap: ["7001": "70012"]))
        client.reportExposure(experiment: "7001", variationID: "70012", userID: "user\(number)")
    }
    say("filled")
    while true { try await Task.sleep(for: .seconds(3_600)) }
case "send":
    let client = try HoldfastClient(configuration: configuration)
    let deliveries = client.deliveries()
    let telling = Task {
        for await notice in deliveries {
            if case .delivered = notice.outcome { say("delivered") }
        }
    }
    try await client.flush()
    telling.cancel()
    client.destroy()
case "track":
    configuration.flushInterval = .milliseconds(100)
    let client = try HoldfastClient(configuration: configuration)
    let first = Int(Date().timeIntervalSince1970 * 1_000) % 1_000_000_000 * 1_000
    // Not more than the queue can hold of several such processes, however long the machine takes to send and to kill.
    for number in 0..<200 {
        client.track(goalID: "purchase", value: Double(first + number), userID: "ada")
        say("\(first + number)")
        try await Task.sleep(for: .milliseconds(1))
    }
    while true { try await Task.sleep(for: .seconds(3_600)) }
case "compact":
    // A small limit makes the queue rewrite its file soon.
    configuration.queueBytes = 65_536
    configuration.flushInterval = .seconds(3_600)
    configuration.batchSize = 1_000
    let client = try HoldfastClient(configuration: configuration)
    client.reportExposure(experiment: "gone", variationID: "1", userID: "ada")
    let replacement = configuration.directory.appendingPathComponent("queue.log.new").path
    let tags = ["text": HoldfastValue.string(String(repeating: "x", count: 1_000))]
    Thread.detachNewThread {
        // The test may get no thread for a while, and until it has one the disk waits.
        Thread.sleep(forTimeInterval: 300)
        say("stuck")
        exit(1)
    }
    while !FileManager.default.fileExists(atPath: replacement) {
        for _ in 0..<50 { client.track(goalID: "purchase", tags: tags, userID: "ada") }
        try? await client.flush()
    }
    for number in 0..<20 { client.track(goalID: "purchase", value: Double(number), userID: "ada") }
    say("tracked")
    client.destroy()
    exit(0)
case "full":
    // No file can grow, as on a full disk.
    signal(SIGXFSZ, SIG_IGN)
    configuration.reportsEvaluationCounts = false
    var none = rlimit(rlim_cur: 0, rlim_max: 0)
    setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &none)
    let client = try HoldfastClient(configuration: configuration)
    let user = HoldfastUser(id: "ada", attributes: ["country": "de"])
    try await client.initialize(user: user, timeout: .seconds(60))
    client.track(goalID: "purchase")
    let flag = client.stringVariation(flagKey: "checkout", defaultValue: "none")
    say("\(flag) \(client.queueMetrics.droppedStorage)")
    client.destroy()
    exit(0)
case "defaults":
    let storage = UserDefaultsSplitTestStorage()
    if let kept = storage.string(forKey: "group") {
        say("kept \(kept)")
    } else {
        storage.set("red", forKey: "group")
        say("stored")
    }
    // At once, as an app that crashes.
    _exit(0)
case "shared":
    // Traps: no client was started.
    _ = HoldfastClient.shared
    exit(0)
default:
    fatalError("no such mode: \(arguments[3])")
}
