const options = {
  tsconfig: {
    jsx: "react-jsx",
    isolatedModules: true,
    target: "ES2023",
    module: "CommonJS",
    esModuleInterop: true,
  },
};

export default {
  testEnvironment: "jsdom",
  // Of D3's builds, Jest can only load the one under the condition "umd".
  testEnvironmentOptions: { customExportConditions: ["browser", "umd"] },
  testMatch: ["<rootDir>/test/**/*.test.{ts,tsx}"],
  setupFiles: ["<rootDir>/test/browser.ts"],
  transform: { "\\.tsx?$": ["ts-jest", options] },
  maxWorkers: 1,
  // axe is slow on a busy machine.
  testTimeout: 30_000,
};
