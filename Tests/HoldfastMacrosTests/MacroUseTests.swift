import HoldfastClient
import Testing

/// Values that macros have made, in a debug build of another file. It names none of their members before it reads them:
/// the compiler expands the macros of another file only for members that are named, so what a type is like must not
/// depend on the macro.
struct MacroUseTests {
    private enum Key: String, RemoteKey {
        case paywall, stories, onboarding, sound, comments, video

        var valueType: any RemoteValue.Type {
            switch self {
            case .paywall: PaywallType.self
            case .stories: StoriesEnabled.self
            case .onboarding: OnboardingType.self
            case .sound: SoundEnabled.self
            case .comments: Values.CommentsEnabled.self
            case .video: Values.VideoEnabled.self
            }
        }
    }

    private struct Screen {
        var paywall: PaywallType
        var stories: StoriesEnabled
        var onboarding: OnboardingType
        var sound: SoundEnabled
        var comments: Values.CommentsEnabled
        var video: Values.VideoEnabled
    }

    @Test func `Values are read and kept in another file than their declarations`() {
        let service = RemoteConfigService(
            keeper: InMemoryRemoteConfigKeeper([
                "paywall": "b", "stories": true, "onboarding": "long", "sound": "true_baseline", "comments": "on",
            ]))
        let stories: StoriesEnabled = service.remoteValue(for: Key.stories)
        let screen = Screen(
            paywall: service.remoteValue(for: Key.paywall), stories: stories,
            onboarding: service.remoteValue(for: Key.onboarding), sound: service.remoteValue(for: Key.sound),
            comments: service.remoteValue(for: Key.comments), video: service.remoteValue(for: Key.video))
        #expect(screen.stories.displayName == "enabled" && screen.comments.displayName == "enabled")
        #expect(screen.paywall.displayName == "b" && screen.onboarding.displayName == "long")
        #expect(screen.sound.displayName == "Enabled (baseline)")
        #expect(screen.video.displayName == "Disabled (baseline)")
    }
}
