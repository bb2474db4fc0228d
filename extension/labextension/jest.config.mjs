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
  // D3 has several builds, of which Jest can load only the one for the export condition "umd".
  testEnvironmentOptions: { customExportConditions: ["browser", "umd"] },
  testMatch: ["<rootDir>/test/**/*.test.{ts,tsx}"],
  setupFiles: ["<rootDir>/test/browser.ts"],
  transform: { "\\.tsx?$": ["ts-jest", options] },
  maxWorkers: 1,
  // Checks with axe can take longer than Jest's default of 5 seconds on a busy machine.
  testTimeout: 30_000,
};
