import Combine
import Foundation
import HoldfastClient
import SwiftUI
import UIKit

// The code of the article Apps; ArticleTests compares the two.

struct NewHome: View { var body: Never { fatalError() } }
struct Home: View { var body: Never { fatalError() } }
let userID = "ada"
let endpoint = URL(fileURLWithPath: "/")

@main struct ExampleApp: App {
    private let flags: FlagModel

    init() {
        HoldfastBackgroundTasks.register()
        var configuration = HoldfastConfiguration(endpoint: endpoint, token: "…")  // of scope client
        configuration.appVersion = Bundle.main.infoDictionary?["CFBundleShortVersionString"] as? String
        do {
            try HoldfastClient.start(configuration: configuration, user: HoldfastUser(id: userID))
        } catch {
            // A wrong configuration, another client in the directory, or a directory that cannot be written.
            print(error.localizedDescription)
        }
        // Without a client the app shows its defaults.
        flags = FlagModel(client: HoldfastClient.sharedIfStarted)
    }

    var body: some Scene {
        WindowGroup { ContentView(flags: flags) }
    }
}

struct ContentView: View {
    let flags: FlagModel

    var body: some View {
        if flags.boolVariation(flagKey: "new-home", defaultValue: false) { NewHome() } else { Home() }
    }
}

struct SmallApp: App {
    var body: some Scene {
        WindowGroup { Home() }
            .holdfastBackgroundTasks()
    }
}

func share(flagsOf client: HoldfastClient, in file: URL) {
    client.addUpdateListener { [weak client] _ in
        guard let client else { return }
        try? JSONEncoder().encode(client.flagValues).write(to: file, options: .atomic)
    }
}

func sharedFlags(in file: URL) -> [String: HoldfastValue] {
    (try? JSONDecoder().decode([String: HoldfastValue].self, from: Data(contentsOf: file))) ?? [:]
}

enum UIKitApp {
    final class AppDelegate: UIResponder, UIApplicationDelegate {
        func application(
            _ application: UIApplication,
            didFinishLaunchingWithOptions launchOptions: [UIApplication.LaunchOptionsKey: Any]?
        ) -> Bool {
            HoldfastBackgroundTasks.register()
            let configuration = HoldfastConfiguration(endpoint: endpoint, token: "…")  // of scope client
            do {
                try HoldfastClient.start(configuration: configuration, user: HoldfastUser(id: userID))
            } catch {
                print(error.localizedDescription)
            }
            return true
        }

        func application(
            _ application: UIApplication, didReceiveRemoteNotification userInfo: [AnyHashable: Any]
        ) async -> UIBackgroundFetchResult {
            guard let client = HoldfastClient.sharedIfStarted else { return .noData }
            do {
                try await client.fetchEvaluations(timeout: .seconds(20))
                return .newData
            } catch {
                return .failed
            }
        }
    }
}

@MainActor func combine(client: HoldfastClient) {
    let changes = PassthroughSubject<Set<String>, Never>()
    client.addMainActorUpdateListener { changes.send($0) }
}

@MainActor func notNoticed(client: HoldfastClient) async {
    HoldfastBackgroundTasks.register { ownClient }
    try? await client.refreshInBackground()
}

let ownClient: HoldfastClient? = nil
